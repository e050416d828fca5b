// Record when each NVTX range of a program opens and closes, in one file for each process. Records survive kill -9.
//
// Usage    NVTX_INJECTION64_PATH=bare_nvtx.so KERNEL_LEDGER_BARE=FOLDER program…     (nsys_scripts/bare.sh does this)
// File     FOLDER/<pid>-<start>.bare: a chunk with the header, then chunks of 4096 records. bare_ranges.py reads it.
// Chunk    Either events of one thread, in their order, or names. A zero ends it: new memory is zeroed.
// Event    16 bytes: the time in ns; then kind (8 bits), domain (24 bits), value (32 bits) in one atomic write.
// Cost     One reading of the clock and 16 bytes an event. A plain string is also hashed and compared; a registered
//          one is not.
// Needs    libc only. nvtx.h declares the interface of NVTX.
//
// The file is mapped as shared memory, so its records stay when the process is killed. Disk space is reserved before a
// chunk is written: a full disk ends the recording, not the program.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 65536, RECORD = 16, BUCKETS = 1 << 16, LONGEST = 4096, SPARE = 64 };
enum kind { THREAD = 1, PUSH, POP, START, END, NAMES };
static uint64_t most_bytes = 1ull << 30;  // largest size of a file: 33 million ranges

typedef struct {
  char magic[8];
  uint32_t version, pid, parent;
  int32_t rank, local_rank;  // -1: none
  uint32_t is_full;          // 1: recording ended before the program did
  uint64_t start_ns;
  _Atomic uint64_t lost;  // events that were not recorded
} header;

typedef struct {
  uint64_t time_ns;
  _Atomic uint64_t what;
} event;

typedef struct {
  event *next, *end;
  uint32_t index;  // of `next` in the file, in records
} cursor;

typedef struct name {
  struct name *in_bucket, *before;
  uint64_t hash;
  uint32_t id, length;
  char text[];
} name;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end;
static int file = -1;
static int is_opened, is_full;
static uint64_t file_bytes;
static header* head;
static _Atomic(name*) buckets[BUCKETS];
static name* last_name;
static uint32_t names_known, process;
static char *names_next, *names_end;
static cursor spare[SPARE];  // chunks of threads that ended, with room left
static int spares;
static __thread cursor mine;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t packed(enum kind kind, const name* domain, uint32_t value) {
  return (uint64_t)kind << 56 | (uint64_t)((domain ? domain->id : 0) & 0xffffff) << 32 | value;
}

static void put(uint64_t time_ns, uint64_t what) {
  mine.next->time_ns = time_ns;
  atomic_store_explicit(&mine.next->what, what, memory_order_release);
  mine.next++;
  mine.index++;
}

// --------------------------------------------------- the file; callers of map, write_name and open_file hold `lock`

static int number_of(const char* variable) {
  const char* text = getenv(variable);
  return text && *text >= '0' && *text <= '9' ? atoi(text) : -1;
}

static void* map(uint64_t bytes) {
  void* at = MAP_FAILED;
  if (file >= 0 && file_bytes + bytes <= most_bytes && !posix_fallocate(file, (off_t)file_bytes, (off_t)bytes))
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)file_bytes);
  if (at == MAP_FAILED) {
    is_full = 1;
    if (head) head->is_full = 1;
    return NULL;
  }
  file_bytes += bytes;
  return at;
}

static void write_name(const name* n) {
  size_t room = (RECORD + (size_t)n->length + 7) & ~7ul;
  if (names_next + room > names_end) {
    char* chunk = map(CHUNK);
    if (!chunk) return;
    ((event*)chunk)->what = packed(NAMES, NULL, 0);
    names_next = chunk + RECORD;
    names_end = chunk + CHUNK;
  }
  memcpy(names_next + RECORD, n->text, n->length);
  *(uint64_t*)(names_next + 8) = n->length;
  *(_Atomic uint64_t*)names_next = n->id;
  names_next += room;
}

static void open_file(void) {
  const char* folder = getenv("KERNEL_LEDGER_BARE");
  char path[4096];
  uint64_t start = now();
  struct rlimit limit;
  if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < most_bytes) most_bytes = limit.rlim_cur;  // past it: SIGXFSZ
  is_opened = 1;
  process = (uint32_t)getpid();
  if (!folder ||
      snprintf(path, sizeof path, "%s/%u-%llu.bare", folder, process, (unsigned long long)start) >= (int)sizeof path)
    is_full = 1;
  else
    file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  header* page = map(CHUNK);
  if (!page) return;
  *page = (header){.version = 1, .pid = process, .parent = (uint32_t)getppid(), .start_ns = start};
  page->rank = number_of("RANK");
  page->local_rank = number_of("LOCAL_RANK");
  memcpy(page->magic, "KL-BARE", 8);
  head = page;
  for (const name* n = last_name; n; n = n->before) write_name(n);  // after a fork: the names of the parent
}

// Give this thread a cursor with room; on a full disk, one without room.
static void next_chunk(void) {
  pthread_mutex_lock(&lock);
  if (!is_opened) open_file();
  if (mine.end) munmap(mine.end - CHUNK / RECORD, CHUNK);
  mine = (cursor){0};
  if (spares) {
    mine = spare[--spares];
  } else if (!is_full) {
    uint32_t index = (uint32_t)(file_bytes / RECORD);
    event* chunk = map(CHUNK);
    if (chunk) mine = (cursor){chunk, chunk + CHUNK / RECORD, index};
  }
  pthread_mutex_unlock(&lock);
  if (mine.next) {
    put(0, packed(THREAD, NULL, (uint32_t)syscall(SYS_gettid)));
    pthread_setspecific(at_thread_end, &mine);
  }
}

static void release(void* ended) {
  cursor* c = ended;
  pthread_mutex_lock(&lock);
  if (spares < SPARE && c->end - c->next > 2) spare[spares++] = *c;
  pthread_mutex_unlock(&lock);
  *c = (cursor){0};
}

static int has_room(void) {
  if (mine.next == mine.end) next_chunk();
  if (mine.next) return 1;
  if (head) head->lost++;
  return 0;
}

// ------------------------------------------------------------------------------------------------------------- names

static const name* intern(const char* text) {
  if (!text) return NULL;
  uint64_t hash = 14695981039346656037ull;  // FNV-1a
  size_t length = 0;
  for (; text[length] && length < LONGEST; length++) hash = (hash ^ (unsigned char)text[length]) * 1099511628211ull;
  _Atomic(name*)* bucket = &buckets[(hash ^ hash >> 32) % BUCKETS];
  for (name* n = atomic_load_explicit(bucket, memory_order_acquire); n; n = n->in_bucket)
    if (n->hash == hash && n->length == length && !memcmp(n->text, text, length)) return n;
  name* made = malloc(sizeof *made + length);
  if (!made) return NULL;
  pthread_mutex_lock(&lock);
  for (name* n = *bucket; n; n = n->in_bucket)
    if (n->hash == hash && n->length == length && !memcmp(n->text, text, length)) {
      pthread_mutex_unlock(&lock);  // another thread was faster
      free(made);
      return n;
    }
  *made = (name){*bucket, last_name, hash, ++names_known, (uint32_t)length};
  memcpy(made->text, text, length);
  last_name = made;
  if (is_opened && !is_full) write_name(made);
  atomic_store_explicit(bucket, made, memory_order_release);
  pthread_mutex_unlock(&lock);
  return made;
}

// ------------------------------------------------------------------------------------------------ NVTX calls these

static int push(const name* domain, const name* n) {
  if (has_room()) put(now(), packed(PUSH, domain, n ? n->id : 0));
  return -2;  // NVTX_NO_PUSH_POP_TRACKING
}

static int pop(const name* domain) {
  uint64_t time_ns = now();
  if (has_room()) put(time_ns, packed(POP, domain, 0));
  return -2;
}

static uint64_t start(const name* domain, const name* n) {
  if (!has_room()) return 0;
  uint64_t id = (uint64_t)process << 32 | mine.index;
  put(now(), packed(START, domain, n ? n->id : 0));
  return id;
}

static void end(const name* domain, uint64_t id) {
  uint64_t time_ns = now();
  if (id >> 32 == process && has_room())
    put(time_ns, packed(END, domain, (uint32_t)id));  // ignore ranges that the parent started before a fork
}

#include "nvtx.h"

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

// After a fork, the child writes a file of its own: the mapped chunks belong to the parent's file.
static void in_child(void) {
  if (file >= 0) close(file);
  file = -1, is_opened = is_full = spares = 0, file_bytes = 0, process = 0;
  head = NULL, names_next = names_end = NULL;
  if (mine.end) munmap(mine.end - CHUNK / RECORD, CHUNK);
  mine = (cursor){0};
  pthread_mutex_unlock(&lock);
}

static void set_up(void) {
  pthread_key_create(&at_thread_end, release);
  pthread_atfork(before_fork, after_fork, in_child);
}

// NVTX calls this at the first call of one of its functions, once in each library of the program that contains NVTX.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void* (*table_of_tables)(uint32_t)) {
  pthread_once(&once, set_up);
  return take_nvtx(table_of_tables);
}
