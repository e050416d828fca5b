// A renderer that makes a kernel of each material's constant. a: PTX is compiled and loaded in each step, b: once.
#include "key.h"
#include <cuda.h>

const char* source = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry shade(.param .u64 shade_param_0, .param .u32 shade_param_1) {
  .reg .pred %%p<2>;
  .reg .f32 %%f<4>;
  .reg .b32 %%r<6>;
  .reg .b64 %%rd<4>;
  ld.param.u64 %%rd1, [shade_param_0];
  ld.param.u32 %%r1, [shade_param_1];
  cvta.to.global.u64 %%rd2, %%rd1;
  mov.u32 %%r2, %%ntid.x;
  mov.u32 %%r3, %%ctaid.x;
  mov.u32 %%r4, %%tid.x;
  mad.lo.s32 %%r5, %%r3, %%r2, %%r4;
  mul.wide.s32 %%rd3, %%r5, 4;
  add.s64 %%rd2, %%rd2, %%rd3;
  ld.global.f32 %%f1, [%%rd2];
LOOP:
  sin.approx.f32 %%f2, %%f1;
  mul.f32 %%f2, %%f2, 0f%08X;
  fma.rn.f32 %%f1, %%f1, 0f3F7D70A4, %%f2;
  add.s32 %%r1, %%r1, -1;
  setp.gt.s32 %%p1, %%r1, 0;
  @%%p1 bra LOOP;
  st.global.f32 [%%rd2], %%f1;
  ret;
}
)";

template <class F>
F driver(const char* name) {
  void* found;
  cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  return (F)found;
}
#define DRIVER(call) \
  if (call != CUDA_SUCCESS) fprintf(stderr, "%s failed\n", #call), exit(1)

struct Program {
  static const int n = 1 << 22;
  bool each;
  unsigned material = (unsigned)(now() * 1e6) % 0x100000;
  float* pixels = device<float>(n);
  CUmodule module = nullptr;
  CUfunction shade;
  decltype(&cuModuleLoadData) load = driver<decltype(load)>("cuModuleLoadData");
  decltype(&cuModuleGetFunction) get = driver<decltype(get)>("cuModuleGetFunction");
  decltype(&cuModuleUnload) unload = driver<decltype(unload)>("cuModuleUnload");
  decltype(&cuLaunchKernel) launch = driver<decltype(launch)>("cuLaunchKernel");
  Program(char form) : each(form == 'a') { make(); }
  void make() {
    char text[4096];
    snprintf(text, sizeof(text), source, 0x3F800000 + material++);
    if (module) DRIVER(unload(module));
    DRIVER(load(&module, text));
    DRIVER(get(&shade, module, "shade"));
  }
  void step(int) {
    int rounds = 1200;
    void* arguments[] = {&pixels, &rounds};
    if (each) make();
    DRIVER(launch(shade, n / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
  }
};
KEY_MAIN(Program)
