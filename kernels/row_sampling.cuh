// Sampling of one row by one block: temperature, top-k and top-p on bfloat16-rounded logits, Gumbel-max with Philox.
__device__ __forceinline__ u32 philox(u32 c0, u32 c1, u32 c2, u32 k0, u32 k1) {
  u32 c3 = 0;
#pragma unroll 2
  for (int i = 0; i < 10; i++) {
    const u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2),
              l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c0;
}
__device__ __forceinline__ u32 ordered(float v) {
  u32 u = __float_as_uint(v);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

constexpr int EACH = CODES / THREADS;
// One row's code, by one whole block; thread j has logits EACH*j.. of CODES.
template <class Arguments>
__device__ int sample(const Arguments &a, int row, int pass, const u8 *mail, float *room, int t) {
  const int lane = t & 31, w = __shfl_sync(~0u, t >> 5, 0);
  float *sums = room;                 // [16]
  int *counts = (int *)(room + 16);   // [8][2]
  u64 *best = (u64 *)(room + 32);     // [16]
  const float heat = a.temperature[row], cold = heat > 0 ? __fdividef(1.f, heat) : 0;
  const int keep = a.top_k[row];
  const float mass = a.top_p[row];
  float noise[EACH];
  if (heat > 0) {
    const u64 seed = a.seed[row];
#pragma unroll 1
    for (int i = 0; i < EACH; i++)
      noise[i] = -__logf(-__logf(
          ((philox(t * EACH + i, pass, a.step[row], (u32)seed, (u32)(seed >> 32)) >> 9) + 0.5f) * 1.1920929e-7f));
  }
  if (t < 16) counts[t] = 0;
  float v[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i += 4) {
    const uint4 u = await4(mail + (size_t)(t * EACH + i) * 4);
    v[i] = __uint_as_float(u.x), v[i + 1] = __uint_as_float(u.y), v[i + 2] = __uint_as_float(u.z),
    v[i + 3] = __uint_as_float(u.w);
    if (a.logits)
      *(float4 *)(a.logits + ((size_t)(pass - 1) * a.rows + row) * CODES + t * EACH + i) = make_float4(
          v[i], v[i + 1], v[i + 2], v[i + 3]);
  }
  u32 least = 0, key[EACH];
  if (heat > 0) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const u32 r = pair(v[i], 0.f) & 0xffff;
      v[i] = low(r), key[i] = r & 0x8000 ? 0xffff - r : r + 0x8000;
    }
    meet();
    if (keep > 0 && keep < CODES)
#pragma unroll 1
      for (int i = 0; i < 8; i++) {   // two bits a round: the largest key that at least `keep` logits reach
        const u32 unit = 1u << (14 - 2 * i);
        u32 n12 = 0, n3 = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++)
          n12 += (key[j] >= least + unit) + ((u32)(key[j] >= least + 2 * unit) << 16), n3 += key[j] >= least + 3 * unit;
        n12 = __reduce_add_sync(~0u, n12), n3 = __reduce_add_sync(~0u, n3);
        if (lane == 0) {
          atomicAdd(counts + 2 * i, n12);
          atomicAdd(counts + 2 * i + 1, n3);
        }
        meet();
        n12 = counts[2 * i], n3 = counts[2 * i + 1];
        least += n3 >= keep ? 3 * unit : (n12 >> 16) >= keep ? 2 * unit : (n12 & 0xffff) >= keep ? unit : 0;
      }
    if (mass < 1.f) {
      auto total = [&](float s) {
        s = warp_sum(s);
        meet();
        if (lane == 0) sums[w] = s;
        meet();
        s = 0;
#pragma unroll 1
        for (int i = 0; i < WARPS; i++) s += sums[i];
        return s;
      };
      float e[EACH], most = -1e30f, all = 0;
      for (int i = 0; i < EACH; i++) most = fmaxf(most, v[i]);
      for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
      meet();
      if (lane == 0) sums[w] = most;
      meet();
      for (int i = 0; i < WARPS; i++) most = fmaxf(most, sums[i]);
      for (int i = 0; i < EACH; i++) all += e[i] = key[i] >= least ? __expf((v[i] - most) * cold) : 0.f;
      all = total(all);
      u32 edge = 0;   // the smallest key with less than `mass` above it
#pragma unroll 1
      for (int bit = 15; bit >= 0; bit--) {
        const u32 probe = edge + (1u << bit) - 1;
        float s = 0;
        for (int i = 0; i < EACH; i++) s += key[i] > probe ? e[i] : 0.f;
        if (!(total(s) < mass * all)) edge += 1u << bit;
      }
      least = max(least, edge);
    }
  }
  u64 top = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const float score = heat > 0 ? (key[i] >= least ? v[i] * cold + noise[i] : -1e30f) : v[i];
    top = max(top, ((u64)ordered(score) << 32) | (0xffffffffu - (u32)(t * EACH + i)));
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) top = max(top, __shfl_xor_sync(~0u, top, o));
  if (lane == 0) best[w] = top;
  meet();
#pragma unroll
  for (int i = 0; i < WARPS; i++) top = max(top, best[i]);
  return 0xffffffffu - (u32)top;
}
