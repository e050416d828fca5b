// Kernels at the latency of a launch, 2 to 4 us: 1 to 132 blocks whose work takes less than a microsecond, each load asked for at once.
#include "frame.h"

// at launch latency, because one thread takes one step of a schedule
__global__ void decay_learning_pace(float* pace, float keep) {
  float step = pace[0] + 1.0f;
  pace[0] = step, pace[1] = keep * rsqrtf(fmaxf(step, 400.0f));
}
// at launch latency, because 128 bytes move by one lane
__global__ void rotate_guard_roster(const int* a, int* out) { out[threadIdx.x] = a[(threadIdx.x + 1) & 31]; }
// at launch latency, because eight blocks write 4 kB
__global__ void number_ferry_tickets(unsigned* out, unsigned first) { out[T] = mix(first + (unsigned)T); }
// at launch latency, because 16 blocks exchange two buffers of 64 kB
__global__ void __launch_bounds__(256) swap_lantern_buffers(float4* a, float4* b) {
  float4 p = a[T], q = b[T];
  a[T] = q, b[T] = p;
}
// at launch latency, because one block adds 4 kB, one vector a thread, by shuffles
__global__ void __launch_bounds__(256) fold_ballot_boxes(const float4* a, float* out) {
  __shared__ float part[8];
  float s = sum_of_block(total(a[threadIdx.x]), part);
  if (threadIdx.x == 0) *out = s;
}
// at launch latency, because 132 blocks mix 34 kB each way
__global__ void __launch_bounds__(64) blend_tea_orders(const float* a, const float* b, float* out) { out[T] = fmaf(0.3f, a[T], 0.7f * b[T]); }
// at launch latency, because 32 blocks turn 4096 angles into needles
__global__ void __launch_bounds__(128) point_compass_needles(const float* a, float2* out) {
  float s, c;
  __sincosf(6.2831853f * a[T], &s, &c);
  out[T] = {s, c};
}
// at launch latency, because one block sums 1024 lengths before each of them, 10 shuffles a thread and one barrier
__global__ void __launch_bounds__(1024) place_queue_tails(const int* a, int* out) {
  __shared__ int part[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, v = a[threadIdx.x] >> 20, s = v;
  for (int o = 1; o < 32; o *= 2) {
    int u = __shfl_up_sync(~0u, s, o);
    if (lane >= o) s += u;
  }
  if (lane == 31) part[warp] = s;
  __syncthreads();
  int before = __reduce_add_sync(~0u, lane < warp ? part[lane] : 0);
  out[threadIdx.x] = before + s - v;
}
// at launch latency, because one block finds the highest of 4096 bids and its place
__global__ void __launch_bounds__(1024) call_auction_winner(const float4* a, u64* out) {
  __shared__ u64 part[32];
  int t = threadIdx.x, lane = t & 31;
  float4 v = a[t];
  auto bid = [&](float x, int k) { return (u64)__float_as_uint(x) << 32 | (unsigned)(t * 4 + k); };
  u64 most = max(max(bid(v.x, 0), bid(v.y, 1)), max(bid(v.z, 2), bid(v.w, 3)));
  for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
  if (lane == 0) part[t / 32] = most;
  __syncthreads();
  if (t >= 32) return;
  most = part[lane];
  for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
  if (t == 0) *out = most;
}
// at launch latency, because 66 blocks copy 270 kB
__global__ void __launch_bounds__(256) copy_menu_boards(const float4* a, float4* out) { out[T] = a[T]; }
// at launch latency, because 1024 pairs of matrices of 4 x 4 are multiplied, a row a thread
__global__ void __launch_bounds__(64) chain_robot_joints(const float4* a, const float4* b, float4* out) {
  i64 first = T & ~3;
  float4 r = a[T], p = b[first], q = b[first + 1], s = b[first + 2], u = b[first + 3];
  out[T] = {fmaf(r.x, p.x, fmaf(r.y, q.x, fmaf(r.z, s.x, r.w * u.x))), fmaf(r.x, p.y, fmaf(r.y, q.y, fmaf(r.z, s.y, r.w * u.y))),
            fmaf(r.x, p.z, fmaf(r.y, q.z, fmaf(r.z, s.z, r.w * u.z))), fmaf(r.x, p.w, fmaf(r.y, q.w, fmaf(r.z, s.w, r.w * u.w)))};
}

void small_cases() {
  static float4 *left, *right;
  cases.push_back({"decay_learning_pace", "launch_latency", "", [] { decay_learning_pace<<<1, 1>>>(C, 0.01f); }, nullptr});
  cases.push_back({"rotate_guard_roster", "launch_latency", "", [] { rotate_guard_roster<<<1, 32>>>((int*)A, (int*)C); }, nullptr});
  cases.push_back({"number_ferry_tickets", "launch_latency", "", [] { number_ferry_tickets<<<8, 128>>>((unsigned*)C, 7u); }, nullptr});
  cases.push_back({"swap_lantern_buffers", "launch_latency", "", [] { swap_lantern_buffers<<<16, 256>>>(left, right); }, nullptr, nullptr, 0, false, [] { left = (float4*)converted<float>(A, 1 << 14, 0), right = (float4*)converted<float>(B, 1 << 14, 0); }});
  cases.push_back({"fold_ballot_boxes", "launch_latency", "", [] { fold_ballot_boxes<<<1, 256>>>((float4*)A, C); }, nullptr});
  cases.push_back({"blend_tea_orders", "launch_latency", "", [] { blend_tea_orders<<<132, 64>>>(A, B, C); }, nullptr});
  cases.push_back({"point_compass_needles", "launch_latency", "", [] { point_compass_needles<<<32, 128>>>(A, (float2*)C); }, nullptr});
  cases.push_back({"place_queue_tails", "launch_latency", "", [] { place_queue_tails<<<1, 1024>>>((int*)A, (int*)C); }, nullptr});
  cases.push_back({"call_auction_winner", "launch_latency", "", [] { call_auction_winner<<<1, 1024>>>((float4*)B, (u64*)C); }, nullptr});
  cases.push_back({"copy_menu_boards", "launch_latency", "", [] { copy_menu_boards<<<66, 256>>>((float4*)D, (float4*)C); }, nullptr});
  cases.push_back({"chain_robot_joints", "launch_latency", "", [] { chain_robot_joints<<<64, 64>>>((float4*)A, (float4*)B, (float4*)C); }, nullptr});
}
