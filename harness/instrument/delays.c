// Delay or leave out work of a running program, in blocks of steps that a driver outside asks for, and time the blocks.
//
// Usage    CUDA_INJECTION64_PATH=delays.so NVTX_INJECTION64_PATH=delays.so KERNEL_LEDGER_DELAYS=FOLDER program…
//          (harness/measure_fix does this)
// File     FOLDER/<pid>.delays, mapped by both sides: a header, blocks, then the names of launches, copies, ranges and
//          calls. The driver decides which slots a name belongs to; this library waits for it when a name is new.
// Delay    A kernel of one thread behind a launch, or before a copy, on the same stream. It reads its length from
//          device memory, so a graph that was captured with it needs no second capture. It counts itself and its time.
// Block    Begins and ends at a step, with every context idle: its time is that of its steps, from start to result.
// Needs    libc. CUPTI and the driver are found at run time; this file declares what it uses of them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
  BLOCKS = 8192,
  HEADER = 1 << 20,
  FILE_BYTES = 16 << 20,
  LONGEST = 4096,
  BUCKETS = 1 << 14,
  MOST = 16,
  SLOTS = 24
};
enum state { ATTACHED = 1, REFUSED, ENDED };
enum mode { CONTROL, DELAY, HOST, REMOVE, VIRTUAL };  // CONTROL: like DELAY, of length 0
enum kind { KERNEL = 1, COPY, RANGE, CALL, GRAPH };
enum decision { DECIDED = 1u << 31, MARKER = 1u << 30, IN_RANGE = 1u << 29, SLOT_BITS = (1u << SLOTS) - 1 };

typedef struct {                                                // the driver writes the first line
  uint64_t start_step, steps, slot, mode, length_ns, every;     // slot >= SLOTS: none; every: 3 takes one of 3 matches
  _Atomic uint64_t begin_ns, end_ns, delays, delayed_ns, hits;  // hits: the matches that were taken
  _Atomic uint64_t part_ns;                                     // in the calls and ranges of the slot, of all threads
} block;

typedef struct {
  char magic[8];
  uint32_t version, pid;
  int32_t rank;
  _Atomic uint32_t state, asked_to_end, published, done;
  _Atomic uint32_t names_bytes, failed, captured, unchanged, contexts;  // unchanged: graphs that refused a change
  uint32_t in_graphs;                                                   // slots whose delays belong into graphs
  _Atomic uint64_t steps;
  char said[256];
  block blocks[BLOCKS];
} shared_file;
_Static_assert(sizeof(shared_file) < HEADER, "the header must hold all blocks");

typedef struct name {
  _Atomic uint32_t decision;
  uint32_t kind;
  _Atomic uint64_t count;
  uint32_t length;
  char text[];
} name;

static shared_file* file;
static _Atomic(name*) buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(block*) current;
static _Atomic int capturing;
static _Atomic uint32_t in_capture[SLOTS];  // matches since the capture began
static __thread int is_ours;                // this thread runs a call of ours
static __thread uint32_t inside;            // slots of the ranges that are open on this thread
static __thread int deep[SLOTS];            // calls and ranges of a slot that are open on this thread
static __thread uint64_t entered[SLOTS];    // when the outermost one began

#ifdef FAKE_CLOCK  // of a test without a GPU
uint64_t FAKE_CLOCK(void);
#define now FAKE_CLOCK
#else
static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

static void spin(uint64_t ns) {
  for (uint64_t start = now(); now() - start < ns;) {
  }
}

// ------------------------------------------------------------------------------------------------------------- names

static uint32_t decision_of(name* n) {
  uint32_t found = atomic_load_explicit(&n->decision, memory_order_acquire);
  for (int i = 0; !(found & DECIDED) && i < 4000 && !file->asked_to_end; i++) {  // the driver needs some 0.1 ms
    usleep(50);
    found = atomic_load_explicit(&n->decision, memory_order_acquire);
  }
  return found & DECIDED ? found : 0;
}

static name* name_of(const char* text, enum kind kind) {
  if (!text) return NULL;
  uint64_t hash = 14695981039346656037ull + kind;  // FNV-1a
  size_t length = 0;
  for (; text[length] && length < LONGEST; length++) hash = (hash ^ (unsigned char)text[length]) * 1099511628211ull;
  for (uint64_t at = hash ^ hash >> 32, tries = 0; tries < 64; at++, tries++) {
    _Atomic(name*)* bucket = &buckets[at % BUCKETS];
    name* found = atomic_load_explicit(bucket, memory_order_acquire);
    if (!found) {
      pthread_mutex_lock(&lock);
      uint32_t room = (uint32_t)(sizeof *found + length + 7) & ~7u, used = file->names_bytes;
      if (!*bucket && HEADER + used + room <= FILE_BYTES) {
        found = (name*)((char*)file + HEADER + used);
        found->kind = kind, found->length = (uint32_t)length;
        memcpy(found->text, text, length);
        atomic_store_explicit(bucket, found, memory_order_release);
        atomic_store_explicit(&file->names_bytes, used + room, memory_order_release);
      }
      pthread_mutex_unlock(&lock);
      if (!(found = *bucket)) return NULL;
    }
    if (found->kind == kind && found->length == length && !memcmp(found->text, text, length)) return found;
  }
  return NULL;
}

// ------------------------------------------------------------------------------------------------- CUDA's own calls

static const char SPIN[] =
    ".version 6.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry kl_spin(.param .u64 place) {\n"
    " .reg .u64 %a, %n, %t, %s, %e; .reg .pred %p;\n"
    " ld.param.u64 %a, [place]; cvta.to.global.u64 %a, %a;\n"
    " ld.volatile.global.u64 %n, [%a]; mov.u64 %s, %globaltimer;\n"
    "again: mov.u64 %t, %globaltimer; sub.u64 %e, %t, %s; setp.lt.u64 %p, %e, %n; @%p bra again;\n"
    " red.global.add.u64 [%a+8], 1; red.global.add.u64 [%a+16], %e; ret;\n}\n"
    ".visible .entry kl_empty() { ret; }\n";

typedef struct {  // of one slot in device memory
  uint64_t length_ns, delays, delayed_ns;
} counters;

typedef struct {
  void *context, *module, *spin, *empty;
  uint64_t at;          // counters of all slots, in device memory
  void* streams[MOST];  // that the program launched on
  int is_ready;
} place;

typedef struct {  // CUDA_KERNEL_NODE_PARAMS_v2
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void **parameters, **extra, *kernel, *context;
} node_parameters;

typedef struct {  // one side of a CUDA_MEMCPY3D
  size_t offset[4];
  unsigned type;  // 1: host, 3: an array, else device or unified
  uint64_t host, device;
  void *array, *reserved;
  size_t pitch, height;
} copy_side;

typedef struct {  // CUDA_MEMCPY3D
  copy_side from, to;
  size_t bytes, height, depth;
} copy_parameters;

#define OF_CUDA(X)                                                                                        \
  X(cuModuleLoadData, (void**, const void*))                                                              \
  X(cuModuleUnload, (void*))                                                                              \
  X(cuModuleGetFunction, (void**, void*, const char*))                                                    \
  X(cuMemAlloc_v2, (uint64_t*, size_t))                                                                   \
  X(cuMemFree_v2, (uint64_t))                                                                             \
  X(cuMemcpyHtoD_v2, (uint64_t, const void*, size_t))                                                     \
  X(cuMemcpyDtoH_v2, (void*, uint64_t, size_t))                                                           \
  X(cuLaunchKernel,                                                                                       \
    (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)) \
  X(cuStreamIsCapturing, (void*, int*))                                                                   \
  X(cuCtxPushCurrent_v2, (void*))                                                                         \
  X(cuCtxPopCurrent_v2, (void**))                                                                         \
  X(cuCtxSynchronize, (void))                                                                             \
  X(cuThreadExchangeStreamCaptureMode, (int*))                                                            \
  X(cuPointerGetAttribute, (void*, int, uint64_t))                                                        \
  X(cuGraphCreate, (void**, unsigned))                                                                    \
  X(cuGraphDestroy, (void*))                                                                              \
  X(cuGraphGetNodes, (void*, void**, size_t*))                                                            \
  X(cuGraphNodeGetType, (void*, int*))                                                                    \
  X(cuGraphKernelNodeGetParams_v2, (void*, node_parameters*))                                             \
  X(cuGraphMemcpyNodeGetParams, (void*, copy_parameters*))                                                \
  X(cuGraphNodeSetEnabled, (void*, void*, unsigned))                                                      \
  X(cuFuncGetName, (const char**, void*))
#define POINTER(name, parameters) int(*name) parameters;
#define NAME(name, parameters) #name,
static struct {
  OF_CUDA(POINTER)
} cuda;
static const char* const CALLS[] = {OF_CUDA(NAME)};

static place places[MOST];

static int load(place* p) {
  return cuda.cuModuleLoadData(&p->module, SPIN) || cuda.cuModuleGetFunction(&p->spin, p->module, "kl_spin") ||
         cuda.cuModuleGetFunction(&p->empty, p->module, "kl_empty") ||
         cuda.cuMemAlloc_v2(&p->at, SLOTS * sizeof(counters)) ||
         cuda.cuMemcpyHtoD_v2(p->at, (counters[SLOTS]){0}, SLOTS * sizeof(counters));
}

// Return what belongs to the context, which must be current; NULL without room or if CUDA refuses.
static place* place_of(void* context) {
  for (int i = 0; context && i < MOST; i++) {
    place* p = &places[i];
    if (p->context == context) return p->is_ready ? p : NULL;
    if (p->context) continue;
    pthread_mutex_lock(&lock);
    if (!p->context) {
      int relaxed = 2;  // another stream may be capturing
      cuda.cuThreadExchangeStreamCaptureMode(&relaxed);
      p->is_ready = !load(p);
      cuda.cuThreadExchangeStreamCaptureMode(&relaxed);
      file->failed += !p->is_ready;
      file->contexts++;
      p->context = context;
    }
    pthread_mutex_unlock(&lock);
    i--;
  }
  return NULL;
}

static void launch_spin(place* p, uint32_t slot, void* stream) {
  uint64_t at = p->at + slot * sizeof(counters);
  if (cuda.cuLaunchKernel(p->spin, 1, 1, 1, 1, 1, 1, 0, stream, (void*[]){&at}, NULL)) file->failed++;
}

static int is_capturing(void* stream) {
  int status = 0;
  return capturing && !cuda.cuStreamIsCapturing(stream, &status) && status == 1;
}

// ------------------------------------------------------------------------------------------- blocks; callers hold lock

static void in_each_context(void (*visit)(place*, block*), block* b) {
  for (int i = 0; i < MOST && places[i].context; i++) {
    void* before;
    if (!places[i].is_ready || cuda.cuCtxPushCurrent_v2(places[i].context)) continue;
    if (cuda.cuCtxSynchronize()) file->failed++;
    visit(&places[i], b);
    cuda.cuCtxPopCurrent_v2(&before);
  }
}

static void set_lengths(place* p, block* b) {
  counters all[SLOTS] = {0};
  if (b && b->slot < SLOTS && (b->mode == DELAY || b->mode == VIRTUAL)) all[b->slot].length_ns = b->length_ns;
  if (cuda.cuMemcpyHtoD_v2(p->at, all, sizeof all)) file->failed++;
}

static void idle(place* p, block* b) { (void)p, (void)b; }

static void read_counters(place* p, block* b) {
  counters all[SLOTS] = {0};
  if (cuda.cuMemcpyDtoH_v2(all, p->at, sizeof all)) file->failed++;
  if (b->slot >= SLOTS) return;
  b->delays += all[b->slot].delays;
  b->delayed_ns += all[b->slot].delayed_ns;
}

static void free_all(place* p, block* b) {
  set_lengths(p, b);
  if (file->captured) return;  // graphs of the program still hold our kernel
  cuda.cuMemFree_v2(p->at);
  cuda.cuModuleUnload(p->module);
  p->is_ready = 0;
}

static void next_step(void) {
  uint64_t steps = ++file->steps;
  if (capturing || file->state != ATTACHED || pthread_mutex_trylock(&lock)) return;
  block* b = current;
  if (b && steps >= b->start_step + b->steps) {
    in_each_context(idle, b);
    b->end_ns = now();
    in_each_context(read_counters, b);
    atomic_store(&current, NULL);
    in_each_context(set_lengths, NULL);
    file->done++;
    b = NULL;
  }
  if (!b && file->done < file->published && steps >= file->blocks[file->done].start_step) {
    b = &file->blocks[file->done];
    b->start_step = steps;
    in_each_context(set_lengths, b);
    in_each_context(idle, b);
    b->begin_ns = now();
    atomic_store(&current, b);
  } else if (!b && file->asked_to_end) {
    in_each_context(free_all, NULL);
    file->state = ENDED;
  }
  pthread_mutex_unlock(&lock);
}

// Count the name, and end a step if it marks one.
static void meet(name* n) {
  if (!n) return;
  n->count++;
  if (decision_of(n) & MARKER) next_step();
}

// Return the slots that the name belongs to here.
static uint32_t slots_of(name* n) {
  uint32_t found = n ? decision_of(n) : 0;
  return found & SLOT_BITS & (found & IN_RANGE ? inside : ~0u);
}

// Return the block that runs if it asks for `mode` of one of the slots, and takes this match; count it.
static block* asking(uint32_t slots, enum mode mode) {
  static _Atomic uint64_t met;
  block* b = slots ? current : NULL;
  if (!b || b->slot >= SLOTS || !(slots >> b->slot & 1)) return NULL;
  if (b->mode != mode && (b->mode != CONTROL || mode != DELAY)) return NULL;
  if (b->every > 1 && (met++ * 0x9e3779b97f4a7c15u >> 32) % b->every) return NULL;  // in no rhythm with the program
  b->hits++;
  return b;
}

static void delay_host(uint32_t slots) {
  block* b = asking(slots, HOST);
  if (!b) return;
  uint64_t start = now();
  spin(b->length_ns);
  b->delays++;
  b->delayed_ns += now() - start;
}

static void spin_on_streams(place* p, block* b, void* but) {
  for (int i = 0; i < MOST; i++)
    if (p->streams[i] && p->streams[i] != but && !is_capturing(p->streams[i]))
      launch_spin(p, (uint32_t)b->slot, p->streams[i] == (void*)-1 ? NULL : p->streams[i]);
}

// A call or range of these slots begins. A virtual speed-up of the host delays the streams while it runs: one that waits
// for the host has its delay meanwhile, and one with work left has it later.
static void enter(uint32_t slots) {
  for (uint32_t slot = 0; slots >> slot; slot++) {
    if (!(slots >> slot & 1) || deep[slot]++) continue;
    entered[slot] = now();
    block* b = asking(1u << slot, VIRTUAL);
    for (int i = 0; b && i < MOST && places[i].context; i++) {
      void* before;
      if (!places[i].is_ready || cuda.cuCtxPushCurrent_v2(places[i].context)) continue;
      spin_on_streams(&places[i], b, NULL);
      cuda.cuCtxPopCurrent_v2(&before);
    }
  }
}

static void leave(uint32_t slots) {
  for (uint32_t slot = 0; slots >> slot; slot++) {
    if (!(slots >> slot & 1) || !deep[slot] || --deep[slot]) continue;
    block* b = current;
    uint64_t end = now();
    if (b && b->slot == slot) b->part_ns += end - (entered[slot] > b->begin_ns ? entered[slot] : b->begin_ns);
    delay_host(1u << slot);
  }
}

static void delay(name* n, void* context, void* stream) {
  uint32_t slots = slots_of(n);
  place* p = place_of(context);
  if (!p || !slots) return;
  if (is_capturing(stream)) {
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
      if (!((slots & file->in_graphs) >> slot & 1)) continue;
      uint32_t number = in_capture[slot]++;  // each node costs a microsecond: 0 to 4, then 8, 16, 32 …
      if (number > 4 && number & (number - 1)) continue;
      launch_spin(p, slot, stream);
      file->captured++;
    }
    return;
  }
  block* b = asking(slots, DELAY);
  if (b) launch_spin(p, (uint32_t)b->slot, stream);
  if (!(b = asking(slots, VIRTUAL))) return;
  spin_on_streams(p, b, stream ? stream : (void*)-1);
  spin(b->length_ns);
}

static void remember_stream(place* p, void* stream) {
  void* kept = stream ? stream : (void*)-1;
  for (int i = 0; p && i < MOST; i++) {
    if (!p->streams[i]) p->streams[i] = kept;
    if (p->streams[i] == kept) return;
  }
}

static void forget_stream(void* stream) {
  for (int i = 0; i < MOST; i++)
    for (int j = 0; j < MOST; j++)
      if (places[i].streams[j] == stream) places[i].streams[j] = NULL;
}

// ------------------------------------------------------------------------------------------------ graphs: removal only

static name* copy_name(const char* to_from) {
  char text[64];
  snprintf(text, sizeof text, "[CUDA memcpy %s]", to_from);
  return name_of(text, COPY);
}

static int is_on_device(uint64_t at) {
  int type = 0;
  return !cuda.cuPointerGetAttribute(&type, 2, at) && type == 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
}

// Return the name of a copy that does not say in which direction it goes.
static name* copy_between(uint64_t to, uint64_t from) {
  int to_device = is_on_device(to), from_device = is_on_device(from);
  return copy_name(to_device     ? from_device ? "Device-to-Device" : "Host-to-Device"
                   : from_device ? "Device-to-Host"
                                 : "Host-to-Host");
}

typedef struct {
  void *executable, *source;         // its nodes name those of the executable graph
  uint32_t slots, removed, refused;  // removed: 1 + the slot that it lacks now; refused: slots that cannot be switched
  int is_orphan;                     // whether the program destroyed the source, which we keep
} graph;
static graph graphs[256];

static uint64_t place_of_side(const copy_side* one) { return one->type == 1 ? one->host : one->device; }

// Return the name of what a node of a graph does; NULL for what cannot be left out.
static name* name_of_node(void* node) {
  const char* text = NULL;
  node_parameters kernel;
  copy_parameters copy;
  int type = -1;
  if (cuda.cuGraphNodeGetType(node, &type)) return NULL;
  if (type == 2) return name_of("[CUDA memset]", COPY);
  if (type == 1) {
    if (cuda.cuGraphMemcpyNodeGetParams(node, &copy) || copy.to.type == 3 || copy.from.type == 3) return NULL;
    return copy_between(place_of_side(&copy.to), place_of_side(&copy.from));
  }
  if (type || cuda.cuGraphKernelNodeGetParams_v2(node, &kernel) || !kernel.function) return NULL;
  return cuda.cuFuncGetName(&text, kernel.function) ? NULL : name_of(text, KERNEL);
}

// Switch the nodes of one slot on or off (slot SLOTS: only tell which there are). Return the slots found.
static uint32_t switch_nodes(graph* g, uint32_t slot, unsigned is_on) {
  void* nodes[16384];
  size_t count = sizeof nodes / sizeof *nodes;
  uint32_t found = 0;
  if (cuda.cuGraphGetNodes(g->source, nodes, &count)) return 0;
  for (size_t i = 0; i < count; i++) {
    name* n = name_of_node(nodes[i]);
    uint32_t slots = n ? decision_of(n) & SLOT_BITS : 0;
    found |= slots;
    if (slot < SLOTS && slots >> slot & 1 && cuda.cuGraphNodeSetEnabled(g->executable, nodes[i], is_on))
      file->unchanged++;
  }
  return found;
}

static void keep_graph(void* executable, void* source) {
  for (int i = 0; i < 256; i++) {
    if (graphs[i].executable) continue;
    graphs[i] = (graph){.executable = executable, .source = source};
    graphs[i].slots = switch_nodes(&graphs[i], SLOTS, 1);
    return;
  }
}

static void drop_graph(void* executable) {
  for (int i = 0; i < 256; i++) {
    graph was = graphs[i];
    if (was.executable != executable) continue;
    graphs[i] = (graph){0};
    int others = 0;
    for (int j = 0; j < 256; j++) others += graphs[j].executable && graphs[j].source == was.source;
    if (was.is_orphan && !others) cuda.cuGraphDestroy(was.source);
  }
}

// The program destroys a source that we need: let it destroy an empty graph instead.
static void keep_source(void** source) {
  void *empty = NULL, *kept = *source;
  for (int i = 0; i < 256; i++) {
    if (!graphs[i].executable || graphs[i].source != kept || !graphs[i].slots) continue;
    if (!empty && cuda.cuGraphCreate(&empty, 0)) return;
    graphs[i].is_orphan = 1;
    *source = empty;
  }
  for (int i = 0; i < 256; i++)
    if (!empty && graphs[i].source == kept) graphs[i] = (graph){0};
}

static void update_graph(void* executable) {
  block* b = current;
  for (int i = 0; i < 256; i++) {
    graph* g = &graphs[i];
    if (!executable || g->executable != executable) continue;
    uint32_t slots = g->slots & ~g->refused;
    uint32_t wanted = b && b->mode == REMOVE && b->slot < SLOTS && slots >> b->slot & 1 ? (uint32_t)b->slot + 1 : 0;
    if (wanted != g->removed) {
      if (g->removed) switch_nodes(g, g->removed - 1, 1);
      uint32_t before = file->unchanged;
      if (wanted) switch_nodes(g, wanted - 1, 0);
      if (file->unchanged != before && wanted) {  // all of its nodes, or none
        switch_nodes(g, wanted - 1, 1);
        g->refused |= 1u << (wanted - 1);
        wanted = 0;
      }
      g->removed = wanted;
    }
    if (wanted) b->hits++;
    return;
  }
}

// ------------------------------------------------------------------------------------------------ CUPTI calls these

typedef struct {  // CUpti_CallbackData
  int site;       // 0: enter, 1: exit
  const char* function;
  void* parameters;
  int* result;
  const char* symbol;
  void* context;
  uint32_t context_id;
  uint64_t* correlation;
  uint32_t correlation_id;
} call;

typedef struct {  // cuLaunchKernel, cuLaunchCooperativeKernel
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
} launch;

typedef struct {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  void *stream, *attributes;
  unsigned attribute_count;
} launch_config;

typedef struct {  // cuLaunchKernelEx
  const launch_config* config;
  void* function;
} launch_ex;

enum does { NOTHING, LAUNCH, LAUNCH_EX, COPIES, BEGIN, FINISH, INSTANTIATE, REPLAY, DESTROY, SOURCE, FORGET };
enum { IDS = 4096, DOMAINS = 3, DRIVER = 1 };
static struct {
  uint8_t does, stream_at;        // stream_at: bytes; 0: the call takes no stream
  uint8_t per_thread, has_bytes;  // whether stream 0 is the thread's own; whether the third value counts bytes
  name *copy, *call;              // of a copy; of a call that may be delayed
} about[DOMAINS][IDS];
static int wants_removal;
static void* subscriber;
static int (*unsubscribe)(void*);

static void copies(const call* c, void* stream, name* n, int has_bytes) {
  uint64_t* values = c->parameters;
  if (c->site) return;
  if (!n) n = copy_between(values[0], values[1]);
  meet(n);
  if (has_bytes && !is_capturing(stream) && asking(slots_of(n), REMOVE)) values[2] = 0;
  delay(n, c->context, stream);
}

static void remove_launch(const call* c, enum does does, name* n, place* p) {
  static __thread launch_config one;
  block* b = asking(slots_of(n), REMOVE);
  if (!b || !p) return;
  if (does == LAUNCH) {
    launch* l = c->parameters;
    l->function = p->empty, l->shared_bytes = 0;
    for (int i = 0; i < 3; i++) l->grid[i] = l->block[i] = 1;
  } else {
    launch_ex* l = c->parameters;
    one = (launch_config){{1, 1, 1}, {1, 1, 1}, 0, l->config->stream, NULL, 0};
    l->config = &one, l->function = p->empty;
  }
}

static void launches(const call* c, enum does does, void* stream) {
  name* n = name_of(c->symbol, KERNEL);
  place* p = place_of(c->context);
  if (!c->site) {
    meet(n);
    if (!is_capturing(stream)) remove_launch(c, does, n, p);
  } else if (!*c->result) {
    remember_stream(p, stream);
    delay(n, c->context, stream);
  }
}

static void* stream_of(const call* c, int domain, uint32_t id) {
  const char* parameters = c->parameters;
  void* found = NULL;
  if (about[domain][id].does == LAUNCH_EX)
    found = ((const launch_ex*)c->parameters)->config->stream;
  else if (about[domain][id].stream_at)
    memcpy(&found, parameters + about[domain][id].stream_at, sizeof found);
  return found || !about[domain][id].per_thread ? found : (void*)2;  // CU_STREAM_PER_THREAD
}

static void on_call(void* user, int domain, uint32_t id, const call* c) {
  (void)user;
  if (is_ours || !file || file->state != ATTACHED || domain >= DOMAINS || id >= IDS) return;
  is_ours = 1;
  void** parameters = c->parameters;
  uint32_t parts = about[domain][id].call ? slots_of(about[domain][id].call) : 0;
  if (parts && !c->site) enter(parts);
  switch (about[domain][id].does) {
    case LAUNCH:
    case LAUNCH_EX:
      launches(c, about[domain][id].does, stream_of(c, domain, id));
      break;
    case COPIES:
      if (about[domain][id].stream_at) remember_stream(place_of(c->context), stream_of(c, domain, id));
      copies(c, stream_of(c, domain, id), about[domain][id].copy, about[domain][id].has_bytes);
      break;
    case BEGIN:
      if (!c->site) memset(in_capture, 0, sizeof in_capture);
      capturing += c->site ? -!!*c->result : 1;
      break;
    case FINISH:
      if (c->site && capturing) capturing--;
      break;
    case INSTANTIATE:
      if (c->site && !*c->result && wants_removal) keep_graph(*(void**)parameters[0], parameters[1]);
      break;
    case REPLAY:
      if (!c->site) meet(name_of("[CUDA graph]", GRAPH));
      if (!c->site && wants_removal) update_graph(parameters[0]);
      break;
    case DESTROY:
      if (!c->site) drop_graph(parameters[0]);
      break;
    case SOURCE:
      if (!c->site && wants_removal) keep_source(&parameters[0]);
      break;
    case FORGET:
      if (!c->site) forget_stream(parameters[0]);
      break;
  }
  if (parts && c->site) leave(parts);
  is_ours = 0;
}

static int starts(const char* text, const char* with) { return !strncmp(text, with, strlen(with)); }

// Say what a function of the driver does, by its name.
static void learn(uint32_t id, const char* text) {
  static const struct {
    const char* start;
    enum does does;
  } KNOWN[] = {
      {"cuLaunchKernelEx", LAUNCH_EX},
      {"cuLaunchKernel", LAUNCH},
      {"cuLaunchCooperativeKernelMulti", NOTHING},
      {"cuLaunchCooperativeKernel", LAUNCH},
      {"cuStreamBeginCapture", BEGIN},
      {"cuStreamEndCapture", FINISH},
      {"cuGraphInstantiate", INSTANTIATE},
      {"cuGraphLaunch", REPLAY},
      {"cuGraphExecDestroy", DESTROY},
      {"cuGraphDestroyNode", NOTHING},
      {"cuGraphDestroy", SOURCE},
      {"cuStreamDestroy", FORGET},
      {"cuMemcpy", COPIES},
      {"cuMemset", COPIES},
  };
  static const struct {
    const char *part, *direction;
  } WAYS[] = {
      {"HtoD", "Host-to-Device"}, {"DtoH", "Device-to-Host"}, {"DtoD", "Device-to-Device"}, {"Peer", "Peer-to-Peer"}};
  static const char* const OTHERS[] = {"Batch", "memcpy2D", "memcpy3D", "Ato", "toA"};  // arrays, several copies
  for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
    if (starts(text, "cuMem") && strcasestr(text, OTHERS[i])) return;
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
    if (!starts(text, KNOWN[i].start)) continue;
    int is_wide = strstr(text, "Peer") || strstr(text, "D2D");
    about[DRIVER][id].does = (uint8_t)KNOWN[i].does;
    about[DRIVER][id].per_thread = strstr(text, "_ptsz") || strstr(text, "_ptds");
    if (KNOWN[i].does == LAUNCH) about[DRIVER][id].stream_at = offsetof(launch, stream);
    if (KNOWN[i].does != COPIES) return;
    if (strstr(text, "Async")) about[DRIVER][id].stream_at = is_wide ? 40 : 24;
    about[DRIVER][id].has_bytes = !is_wide;
    if (starts(text, "cuMemset")) about[DRIVER][id].copy = name_of("[CUDA memset]", COPY);
    for (size_t j = 0; j < sizeof WAYS / sizeof *WAYS; j++)
      if (strstr(text, WAYS[j].part)) about[DRIVER][id].copy = copy_name(WAYS[j].direction);
    return;
  }
}

static void refuse(const char* why) {
  snprintf(file->said, sizeof file->said, "%s", why);
  file->state = REFUSED;
}

// Return CUPTI: the one that the program has loaded, else the named one, else any.
static void* open_cupti(const char* named) {
  static const char* const NAMES[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  void* found = NULL;
  for (int i = 0; i < 3 && !found; i++) found = dlopen(NAMES[i], RTLD_NOW | RTLD_NOLOAD);
  if (!found && named && *named) return dlopen(named, RTLD_NOW);
  for (int i = 0; i < 3 && !found; i++) found = dlopen(NAMES[i], RTLD_NOW);
  return found;
}

static const char* attach(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
    if (!driver || !(((void**)&cuda)[i] = dlsym(driver, CALLS[i])))
      return "The driver lacks a function; it needs CUDA 12.";
  void* cupti = open_cupti(getenv("KERNEL_LEDGER_CUPTI"));
  if (!cupti) return "CUPTI is missing; install the CUDA toolkit, or the package nvidia-cuda-cupti.";
  int (*subscribe)(void**, void*, void*) = (int (*)(void**, void*, void*))dlsym(cupti, "cuptiSubscribe");
  int (*enable)(uint32_t, void*, int, uint32_t) =
      (int (*)(uint32_t, void*, int, uint32_t))dlsym(cupti, "cuptiEnableCallback");
  int (*named_as)(int, uint32_t, const char**) =
      (int (*)(int, uint32_t, const char**))dlsym(cupti, "cuptiGetCallbackName");
  unsubscribe = (int (*)(void*))dlsym(cupti, "cuptiUnsubscribe");
  if (!subscribe || !enable || !named_as || !unsubscribe) return "CUPTI lacks its callbacks.";
  int code = subscribe(&subscriber, (void*)on_call, NULL);
  if (code == 39)
    return "Another profiler is attached; run it without.";  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
  if (code) return "CUPTI refused a subscriber.";
  int asks_for_calls = getenv("KERNEL_LEDGER_CALLS") != NULL;
  for (int domain = DRIVER; domain < DOMAINS; domain++)
    for (uint32_t id = 1; id < 1024; id++) {
      const char* text = NULL;
      if (named_as(domain, id, &text) || !text) continue;
      if (domain == DRIVER) learn(id, text);
      if (asks_for_calls) about[domain][id].call = name_of(text, CALL);
    }
  for (int domain = DRIVER; domain < DOMAINS; domain++)
    for (uint32_t id = 1; id < IDS; id++) {
      if (about[domain][id].call && !(decision_of(about[domain][id].call) & SLOT_BITS)) about[domain][id].call = NULL;
      if ((about[domain][id].does || about[domain][id].call) && enable(1, subscriber, domain, id))
        return "CUPTI refused a callback.";
    }
  return NULL;
}

static void at_end(void) {
  if (!file) return;
  int was = file->state == ATTACHED;
  file->state = file->state == REFUSED ? REFUSED : ENDED;
  if (was && unsubscribe) unsubscribe(subscriber);
}

static void in_child(void) { file = NULL; }  // after a fork, CUDA cannot be used

static void open_file(void) {
  const char *folder = getenv("KERNEL_LEDGER_DELAYS"), *rank = getenv("RANK");
  char path[4096];
  if (file || !folder || snprintf(path, sizeof path, "%s/%u.delays", folder, (unsigned)getpid()) >= (int)sizeof path)
    return;
  int at = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (at < 0 || posix_fallocate(at, 0, FILE_BYTES)) return;
  void* mapped = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, at, 0);
  close(at);
  if (mapped == MAP_FAILED) return;
  file = mapped;
  file->version = 1, file->pid = (uint32_t)getpid(), file->rank = rank && *rank ? atoi(rank) : -1;
  memcpy(file->magic, "KL-DELAY", 8);
  pthread_atfork(NULL, NULL, in_child);
}

static pthread_once_t opened = PTHREAD_ONCE_INIT;

// The CUDA driver calls this when it is initialised.
__attribute__((visibility("default"))) int InitializeInjection(void) {
  pthread_once(&opened, open_file);
  if (!file) return 1;
  wants_removal = getenv("KERNEL_LEDGER_REMOVE") != NULL;
  is_ours = 1;
  const char* why = attach();
  is_ours = 0;
  if (why) {
    refuse(why);
  } else {
    file->state = ATTACHED;
    atexit(at_end);
  }
  return 1;
}

// ------------------------------------------------------------------------------------------------- NVTX calls these

typedef struct {
  name* range;
  uint32_t inside;  // slots of the thread before it
} opened_range;
static __thread opened_range stack[64];
static __thread int depth;

// Return the range's name with * for each number: every name is asked for once, and steps are often numbered.
static const name* intern(const char* text) {
  char kept[LONGEST + 1];
  size_t n = 0;
  pthread_once(&opened, open_file);
  for (int was_digit = 0; file && text && *text && n < LONGEST; text++) {
    int is_digit = *text >= '0' && *text <= '9';
    if (!is_digit || !was_digit) kept[n++] = is_digit ? '*' : *text;
    was_digit = is_digit;
  }
  kept[n] = 0;
  return file && text ? name_of(kept, RANGE) : NULL;
}

static void begin_range(name* n) {
  if (!n || !file || file->state != ATTACHED || is_ours) return;
  is_ours = 1;
  meet(n);
  is_ours = 0;
}

// A range that may be a part begins or ends.
static void part(name* range, void (*what)(uint32_t)) {
  uint32_t slots = decision_of(range) & SLOT_BITS;
  if (!slots || file->state != ATTACHED || is_ours) return;
  is_ours = 1;
  what(slots);
  is_ours = 0;
}

static int push(const name* domain, const name* n) {
  (void)domain;
  begin_range((name*)n);
  if (depth < 64) stack[depth] = (opened_range){(name*)n, inside};
  depth++;
  if (n && file) inside |= decision_of((name*)n) & SLOT_BITS;
  if (n && file) part((name*)n, enter);
  return -2;
}

static int pop(const name* domain) {
  (void)domain;
  if (!depth || --depth >= 64) return -2;
  inside = stack[depth].inside;
  if (stack[depth].range && file) part(stack[depth].range, leave);
  return -2;
}

static uint64_t start(const name* domain, const name* n) {
  (void)domain;
  begin_range((name*)n);
  if (n && file) part((name*)n, enter);
  return (uint64_t)(uintptr_t)n;
}

static void end(const name* domain, uint64_t id) {
  (void)domain;
  if (id && file) part((name*)(uintptr_t)id, leave);
}

#include "nvtx.h"

// NVTX calls this at the first call of one of its functions, once in each library of the program that contains NVTX.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void* (*table_of_tables)(uint32_t)) {
  return take_nvtx(table_of_tables);
}
