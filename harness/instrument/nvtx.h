// The interface of NVTX 3, which is the same in all versions of NVTX 3: what an injection library replaces.
//
// Before it includes this file, a library defines the type `name`, LONGEST and these functions:
//   intern(text)                          the same name for the same text, NULL for none
//   push(domain, name), pop(domain)       a range that is nested, on this thread; both return -2
//   start(domain, name), end(domain, id)  a range that any thread may end
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

typedef struct {  // nvtxEventAttributes_t
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;  // 1 char, 2 wchar_t, 3 registered
  const void* message;
} attributes;

static const name* intern_wide(const wchar_t* text) {
  char utf8[LONGEST + 1];
  size_t n = 0;
  for (; text && *text && n < LONGEST - 4; text++) {
    uint32_t c = (uint32_t)*text;
    if (c < 0x80) {
      utf8[n++] = (char)c;
    } else {
      int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
      utf8[n++] = (char)((0xff00 >> (more + 1) & 0xff) | (c >> 6 * more & 0x3f));
      while (more--) utf8[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
    }
  }
  utf8[n] = 0;
  return text ? intern(utf8) : NULL;
}

static const name* message_of(const attributes* a) {
  switch (a ? a->message_type : 0) {
    case 1:
      return intern(a->message);
    case 2:
      return intern_wide(a->message);
    case 3:
      return a->message;
    default:
      return NULL;
  }
}

static int push_ex(const attributes* a) { return push(NULL, message_of(a)); }
static int push_a(const char* text) { return push(NULL, intern(text)); }
static int push_w(const wchar_t* text) { return push(NULL, intern_wide(text)); }
static int pop_plain(void) { return pop(NULL); }
static uint64_t start_ex(const attributes* a) { return start(NULL, message_of(a)); }
static uint64_t start_a(const char* text) { return start(NULL, intern(text)); }
static uint64_t start_w(const wchar_t* text) { return start(NULL, intern_wide(text)); }
static void end_plain(uint64_t id) { end(NULL, id); }
static int domain_push(const name* domain, const attributes* a) { return push(domain, message_of(a)); }
static uint64_t domain_start(const name* domain, const attributes* a) { return start(domain, message_of(a)); }
static const name* register_a(const name* domain, const char* text) { return (void)domain, intern(text); }
static const name* register_w(const name* domain, const wchar_t* text) { return (void)domain, intern_wide(text); }

typedef void (*function)(void);
typedef struct {
  size_t size;
  int (*table_of)(int module, function*** table, unsigned* count);
} callbacks;
enum { CORE = 1, CORE2 = 5 };

static const struct {
  int module;
  unsigned place;
  function to;
} TAKEN[] = {
    {CORE, 4, (function)start_ex},      {CORE, 5, (function)start_a},      {CORE, 6, (function)start_w},
    {CORE, 7, (function)end_plain},     {CORE, 8, (function)push_ex},      {CORE, 9, (function)push_a},
    {CORE, 10, (function)push_w},       {CORE, 11, (function)pop_plain},   {CORE2, 2, (function)domain_start},
    {CORE2, 3, (function)end},          {CORE2, 4, (function)domain_push}, {CORE2, 5, (function)pop},
    {CORE2, 10, (function)register_a},  {CORE2, 11, (function)register_w}, {CORE2, 12, (function)intern},
    {CORE2, 13, (function)intern_wide},
};

// Put the library's functions into the tables of NVTX; return 0 if this NVTX has none.
static int take_nvtx(const void* (*table_of_tables)(uint32_t)) {
  const callbacks* tables = table_of_tables(1);
  if (!tables || tables->size < sizeof *tables) return 0;
  for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++) {
    function** table = NULL;
    unsigned count = 0;
    if (tables->table_of(TAKEN[i].module, &table, &count) && TAKEN[i].place < count && table[TAKEN[i].place])
      *table[TAKEN[i].place] = TAKEN[i].to;
  }
  return 1;
}
