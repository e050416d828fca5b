// A program that asks for more than a profiler leaves it, or gives a profiler more than it can keep.
//
//   hungry fit FILE     take all memory that was free at the first run, less 16 MB; FILE notes how much that is
//   hungry write MB     write so many MB in one kernel: ncu has to save them before it replays the kernel
//   hungry launch N     launch a small kernel so many times
//   hungry hold MB S    leave other programs so many MB of the GPU's memory, for S seconds
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <unistd.h>

static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

__global__ void write_all(float* out, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) out[i] = float(i);
}

static void write(size_t bytes) {
    float* out = nullptr;
    check(cudaMalloc(&out, bytes), "cudaMalloc of what the kernel writes");
    write_all<<<1024, 256>>>(out, bytes / sizeof(float));
    check(cudaDeviceSynchronize(), "write_all");
    check(cudaFree(out), "cudaFree");
}

static size_t free_bytes() {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
}

static void fit(const char* path) {
    size_t bytes = 0;
    FILE* noted = fopen(path, "r");
    if (!noted || fscanf(noted, "%zu", &bytes) != 1) {
        bytes = free_bytes() - (size_t(16) << 20);
        if (!(noted = fopen(path, "w"))) exit(1);
        fprintf(noted, "%zu\n", bytes);
    }
    fclose(noted);
    void* most = nullptr;
    check(cudaMalloc(&most, bytes), "cudaMalloc of what was free at the first run");
    check(cudaFree(most), "cudaFree"); // a profiler that has room for it has not to save it
    write(1 << 20);
}

static void launch(long times) {
    float* out = nullptr;
    check(cudaMalloc(&out, 1024), "cudaMalloc");
    for (long i = 0; i < times; ++i) write_all<<<1, 32>>>(out, 32);
    check(cudaDeviceSynchronize(), "write_all");
}

int main(int count, char** words) {
    if (count < 3) return fprintf(stderr, "usage: hungry fit FILE | write MB | launch N | hold MB SECONDS\n"), 2;
    if (!strcmp(words[1], "fit")) return fit(words[2]), 0;
    if (!strcmp(words[1], "launch")) return launch(atol(words[2])), 0;
    size_t bytes = size_t(atoll(words[2])) << 20;
    if (!strcmp(words[1], "write")) return write(bytes), 0;
    void* most = nullptr;
    check(cudaMalloc(&most, free_bytes() - bytes), "cudaMalloc of what others are not to have");
    puts("held");
    fflush(stdout);
    sleep(count > 3 ? atoi(words[3]) : 1);
    return 0;
}
