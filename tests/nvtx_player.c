// A program with NVTX ranges, for tests: plays the part of NVTX, whose headers need not be there.
// usage: nvtx_player SCENE [NUMBER]     Its scenes are the functions at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

typedef void (*function)(void);
static function core[16], core2[16];
static function *core_table[16], *core2_table[16];

static int table_of(int module, function*** table, unsigned* count) {
  if (module != 1 && module != 5) return 0;
  *table = module == 1 ? core_table : core2_table;
  *count = 16;
  return 1;
}

static const struct {
  size_t size;
  int (*table_of)(int, function***, unsigned*);
} callbacks = {sizeof callbacks, table_of};

static const void* table_of_tables(uint32_t number) { return number == 1 ? &callbacks : NULL; }

typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;
} attributes;

static void* domain(const char* name) { return ((void* (*)(const char*))core2[12])(name); }
static void* registered(void* of, const char* text) { return ((void* (*)(void*, const char*))core2[10])(of, text); }
static void push(const char* text) { ((int (*)(const char*))core[9])(text); }
static void push_wide(const wchar_t* text) { ((int (*)(const wchar_t*))core[10])(text); }
static void pop(void) { ((int (*)(void))core[11])(); }
static uint64_t start(const char* text) { return ((uint64_t (*)(const char*))core[5])(text); }
static void end(uint64_t id) { ((void (*)(uint64_t))core[7])(id); }
static void push_in(void* of, void* string) {
  attributes a = {.version = 3, .size = sizeof a, .message_type = 3, .message = string};
  ((int (*)(void*, const attributes*))core2[4])(of, &a);
}
static void pop_in(void* of) { ((int (*)(void*))core2[5])(of); }

static void nested(long steps) {
  void *model = domain("model"), *layer = registered(model, "layer");
  for (long i = 0; i < steps; i++) {
    push("step");
    push_in(model, layer);
    push("inner");
    pop();
    pop_in(model);
    pop();
  }
  pop();  // one too many
}

static void* in_thread(void* id) {
  push("thread");
  if (id) end(*(uint64_t*)id);
  pop();
  return NULL;
}

static void threads(long count) {
  push("main");
  uint64_t across = start("across");
  for (long i = 0; i < count; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, i ? NULL : &across);
    pthread_join(thread, NULL);
  }
  pop();
}

static void forks(long unused) {
  (void)unused;
  push("parent");
  uint64_t id = start("of the parent");
  if (!fork()) {
    end(id);
    push("child");
    pop();
    push("parent");
    pop();
    _exit(0);
  }
  wait(NULL);
  end(id);
  pop();
}

static void killed(long steps) {
  nested(steps);
  push("open");
  push("also open");
  pop();
  raise(SIGKILL);
}

static void hostile(long unused) {
  (void)unused;
  char* longest = malloc(10001);
  memset(longest, 'x', 10000), longest[10000] = 0;
  const char* names[] = {"a,b \"c\"\nd\r", "",     "caf\xc3\xa9 \xff", "load /home/someone/model.bin",
                         longest,          "=1+1", "h.0/attn"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) push(names[i]), pop();
  push(NULL), pop();
  push_wide(L"wide \u00e9 \u4e16 \U0001F600"), pop();
  char changing[] = "first";
  push(changing), pop();
  strcpy(changing, "later");
  push(changing), pop();
}

static double measure(long count, int in_domain) {
  void *model = domain("model"), *layer = registered(model, "layer");
  struct timespec t[2];
  clock_gettime(CLOCK_MONOTONIC, t);
  for (long i = 0; i < count; i++) {
    if (in_domain)
      push_in(model, layer), pop_in(model);
    else
      push("model.layers.11.self_attn"), pop();
  }
  clock_gettime(CLOCK_MONOTONIC, t + 1);
  return ((t[1].tv_sec - t[0].tv_sec) * 1e9 + (t[1].tv_nsec - t[0].tv_nsec)) / count;
}

// ns a range, the least of five: through a domain with a registered string, and with a plain string
static void bench(long count) {
  for (int in_domain = 1; in_domain >= 0; in_domain--) {
    double least = 1e9;
    for (int round = 0; round < 5; round++) {
      double ns = measure(count, in_domain);
      if (ns < least) least = ns;
    }
    printf("%.1f\n", least);
  }
}

static void silent(long unused) { (void)unused; }
static void failing(long code) {
  nested(1);
  exit((int)code);
}
static void reading(long unused) {
  (void)unused;
  char line[100] = "";
  if (fgets(line, sizeof line, stdin)) push(line), pop();
}
static void endless(long steps) {
  nested(steps);
  pause();
}

static void nothing(void) {}
static void* no_handle(void) { return NULL; }

int main(int count, char** words) {
  for (int i = 0; i < 16; i++) {
    core[i] = core2[i] = nothing;
    core_table[i] = &core[i], core2_table[i] = &core2[i];
  }
  core2[10] = core2[12] = (function)no_handle;
  const char* path = getenv("NVTX_INJECTION64_PATH");
  void* library = path ? dlopen(path, RTLD_LAZY) : NULL;
  int (*initialize)(const void* (*)(uint32_t)) =
      library ? (int (*)(const void* (*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2") : NULL;
  if (path && (!initialize || !initialize(table_of_tables))) return 99;
  const struct {
    const char* name;
    void (*play)(long);
  } scenes[] = {{"nested", nested},   {"threads", threads}, {"forks", forks},   {"killed", killed},
                {"hostile", hostile}, {"bench", bench},     {"silent", silent}, {"failing", failing},
                {"reading", reading}, {"endless", endless}};
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (count > 1 && !strcmp(words[1], scenes[i].name)) {
      scenes[i].play(count > 2 ? atol(words[2]) : 1);
      return 0;
    }
  return 98;
}
