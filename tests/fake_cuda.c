// A CUDA driver, a CUPTI and a program for tests of harness/instrument/delays.c on a machine without a GPU.
//
// Time is a number: a kernel ends at max(now, end of the one before on its stream) + its time, and a wait moves the
// clock there. Built twice: as libcuda.so.1, which holds CUPTI's functions, too, and with -DPROGRAM as a program. A step
// of `program STEPS [HOST_US]` launches `long_kernel` (300 us) on stream 8 and `short_kernel` (100 us) on stream 16, works
// on the host inside cuMemGetInfo, and waits for both. With FAKE_GRAPH it launches both as one graph, whose nodes can be
// switched off unless FAKE_GRAPH is "fixed". If it is "copies", the graph also sets and uploads on stream 8 (150 us each).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int site;
  const char* function;
  void* parameters;
  int* result;
  const char* symbol;
  void* context;
  uint32_t context_id;
  uint64_t* correlation;
  uint32_t correlation_id;
} call;
typedef void (*callback)(void*, int, uint32_t, const call*);

#ifdef PROGRAM
uint64_t fake_clock(void);
void fake_until(uint64_t ns);
#define now fake_clock
#define until fake_until
#else
static uint64_t clock_ns = 1;
uint64_t fake_clock(void) { return clock_ns += 10; }
void fake_until(uint64_t ns) {
  if (clock_ns < ns) clock_ns = ns;
}
#define now fake_clock
#define until fake_until
#endif

#ifndef PROGRAM
static callback subscriber;
static int enabled[1024];
static uint64_t ends[32];
static const char* const NAMES[] = {
    "", "cuLaunchKernel", "cuMemAlloc_v2", "cuMemGetInfo_v2", "cuGraphInstantiateWithFlags", "cuGraphLaunch"};
static struct node {
  const char* kernel;
  uintptr_t stream;
  uint64_t ns;
  int type, is_off;
} nodes[] = {
    {"long_kernel", 8, 300000, 0, 0}, {"short_kernel", 16, 100000, 0, 0}, {"", 8, 150000, 2, 0}, {"", 8, 150000, 1, 0}};
static int count_of_nodes(void) { return strcmp(getenv("FAKE_GRAPH"), "copies") ? 2 : 4; }
enum { ON_DEVICE = 4096 };

int cuptiSubscribe(void** handle, callback to, void* user) {
  (void)user;
  if (getenv("FAKE_SUBSCRIBED")) return 39;
  subscriber = to;
  *handle = handle;
  return 0;
}
int cuptiUnsubscribe(void* handle) { return (void)handle, 0; }
int cuptiEnableCallback(uint32_t on, void* handle, int domain, uint32_t id) {
  (void)handle;
  if (domain == 1) enabled[id] = (int)on;
  return 0;
}
int cuptiGetCallbackName(int domain, uint32_t id, const char** text) {
  if (domain != 1 || id >= sizeof NAMES / sizeof *NAMES) return 1;
  *text = NAMES[id];
  return 0;
}

int cuModuleLoadData(void** module, const void* text) { return (void)text, *module = malloc(1), 0; }
int cuModuleUnload(void* module) { return free(module), 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return (void)module, *function = strdup(name), 0;
}
int cuMemAlloc_v2(uint64_t* at, size_t bytes) {
  int result = 0;
  call c = {1, "cuMemAlloc_v2", &at, &result, NULL, (void*)1, 0, NULL, 0};
  *at = (uint64_t)(uintptr_t)calloc(bytes, 1);
  if (enabled[2]) subscriber(NULL, 1, 2, &c);
  return 0;
}
int cuMemGetInfo_v2(size_t* ns, size_t* all) {
  int result = 0;
  call c = {0, "cuMemGetInfo_v2", &ns, &result, NULL, (void*)1, 0, NULL, 0};
  if (enabled[3]) subscriber(NULL, 1, 3, &c);
  until(now() + *ns);
  *all = 0, c.site = 1;
  if (enabled[3]) subscriber(NULL, 1, 3, &c);
  return 0;
}
int cuMemFree_v2(uint64_t at) { return free((void*)(uintptr_t)at), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return memcpy((void*)(uintptr_t)to, from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return memcpy(to, (void*)(uintptr_t)from, bytes), 0; }
int cuStreamIsCapturing(void* stream, int* status) { return (void)stream, *status = 0; }
int cuStreamGetCtx(void* stream, void** context) { return (void)stream, *context = (void*)1, 0; }
int cuCtxPushCurrent_v2(void* context) { return (void)context, 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = (void*)1, 0; }
int cuCtxSynchronize(void) {
  for (int i = 0; i < 32; i++) until(ends[i]);
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return (void)mode, 0; }
int cuPointerGetAttribute(int* to, int what, uint64_t at) { return (void)what, *to = 2, at != ON_DEVICE; }
int cuGraphCreate(void) { return 1; }
int cuGraphDestroy(void) { return 1; }
int cuGraphGetNodes(void* graph, void** to, size_t* count) {
  (void)graph, *count = (size_t)count_of_nodes();
  for (size_t i = 0; i < *count; i++) to[i] = &nodes[i];
  return 0;
}
int cuGraphNodeGetType(void* node, int* type) { return *type = ((struct node*)node)->type, 0; }
int cuGraphMemcpyNodeGetParams(void* node, uint64_t* copy) {  // CUDA_MEMCPY3D: from a host, to a unified address
  (void)node, memset(copy, 0, 200);
  return *(unsigned*)&copy[4] = 1, *(unsigned*)&copy[15] = 4, copy[17] = ON_DEVICE, 0;
}
int cuGraphKernelNodeGetParams_v2(void* node, const char** function) { return *function = *(const char**)node, 0; }
int cuGraphNodeSetEnabled(void* graph, void* node, unsigned is_on) {
  (void)graph;
  if (!strcmp(getenv("FAKE_GRAPH"), "fixed")) return 1;
  return ((struct node*)node)->is_off = !is_on, 0;
}
int cuFuncGetName(const char** text, const char* function) { return *text = function, 0; }

static void told(uint32_t id, int site, void* parameters) {
  int result = 0;
  call c = {site, NAMES[id], parameters, &result, NULL, (void*)1, 0, NULL, 0};
  if (enabled[id]) subscriber(NULL, 1, id, &c);
}
int cuGraphInstantiateWithFlags(void** graph, void* source, unsigned flags) {
  (void)flags;
  void* given[] = {graph, source};
  *graph = nodes;
  told(4, 0, given), told(4, 1, given);
  return 0;
}
int cuGraphLaunch(void* graph, void* stream) {
  void* given[] = {graph, stream};
  told(5, 0, given);
  for (int i = 0; i < count_of_nodes(); i++) {
    uint64_t* end = &ends[nodes[i].stream];
    if (!nodes[i].is_off) *end = (*end > now() ? *end : now()) + nodes[i].ns;
  }
  told(5, 1, given);
  return 0;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  (void)extra;
  struct {
    void* function;
    unsigned grid[3], block[3], shared;
    void* stream;
  } given = {function, {gx, gy, gz}, {bx, by, bz}, shared, stream};
  int result = 0;
  call c = {0, "cuLaunchKernel", &given, &result, function, (void*)1, 0, NULL, 0};
  if (enabled[1]) subscriber(NULL, 1, 1, &c);
  uint64_t took = !strcmp(given.function, "long_kernel")    ? 300000
                  : !strcmp(given.function, "short_kernel") ? 100000
                                                            : 0;
  uint64_t* end = &ends[(uintptr_t)stream % 32];
  if (!strcmp(given.function, "kl_spin")) {
    uint64_t* counters = *(uint64_t**)parameters[0];
    took = counters[0];
    counters[1]++, counters[2] += took;
  }
  *end = (*end > now() ? *end : now()) + took;
  c.site = 1;
  if (enabled[1]) subscriber(NULL, 1, 1, &c);
  return 0;
}
#else
int main(int argc, char** argv) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  const char* path = getenv("CUDA_INJECTION64_PATH");
  void* library = path ? dlopen(path, RTLD_NOW) : NULL;
  if (!driver || (path && !library)) return puts(dlerror()), 1;
  if (library) ((int (*)(void))dlsym(library, "InitializeInjection"))();
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) =
      (int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
               void**))dlsym(driver, "cuLaunchKernel");
  int (*work)(size_t*, size_t*) = (int (*)(size_t*, size_t*))dlsym(driver, "cuMemGetInfo_v2");
  int (*wait)(void) = (int (*)(void))dlsym(driver, "cuCtxSynchronize");
  int (*build)(void**, void*, unsigned) =
      (int (*)(void**, void*, unsigned))dlsym(driver, "cuGraphInstantiateWithFlags");
  int (*replay)(void*, void*) = (int (*)(void*, void*))dlsym(driver, "cuGraphLaunch");
  void* graph = NULL;
  launch("first_kernel", 1, 1, 1, 1, 1, 1, 0, (void*)8, NULL, NULL);
  if (getenv("FAKE_GRAPH")) build(&graph, &graph, 0);
  for (int step = 0, steps = argc > 1 ? atoi(argv[1]) : 10; step < steps; step++) {
    if (graph) replay(graph, (void*)8);
    if (!graph) launch("long_kernel", 1, 1, 1, 1, 1, 1, 0, (void*)8, NULL, NULL);
    if (!graph) launch("short_kernel", 1, 1, 1, 1, 1, 1, 0, (void*)16, NULL, NULL);
    size_t ns = argc > 2 ? (size_t)atoi(argv[2]) * 1000 : 0, all;
    if (ns) work(&ns, &all);
    wait();
  }
  return 0;
}
#endif
