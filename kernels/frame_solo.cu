// The inner passes for a single row, as few instructions as possible: 8 warps that multiply and one that copies.
// A warp has 128 inputs of every product. Attention is done where its result is needed: the 128 inputs of a warp in
// `output` are one query head, so each block keeps the keys and values of its half of the heads, and four exchanges a
// layer are left. All eight columns of a tensor-core product hold the same row; any lane has the result.
constexpr int P = 2, A_LAYER = 15, FIRST = (LAYERS - 1) * A_LAYER + 4, KEPT = PASSES - 1;
static_assert(
    HID == 1024 && FFN == 3072 && WIDTH == 2048 && WARPS == 8 && PART == 128 * LANE && CODES == 2048, "cut for these");

struct Stream {   // chunks in the order of their use: projection, then pass after pass the layers and the head
  const u8 *at, *layers, *heads;
  int left, pass;
  bool in_head;
  __device__ Stream(const Arguments &a, int b) {
    layers = a.layers + (size_t)b * LAYERS * A_LAYER * CHUNK, heads = a.heads + (size_t)b * 2 * CHUNK;
    at = a.projection + (size_t)b * 2 * CHUNK, left = 2, pass = -1, in_head = true;
  }
  __device__ __forceinline__ const u8 *next() {
    if (left == 0) {
      if (in_head || pass == 0) {
        if (++pass == PASSES) {
          pass--;
          return nullptr;
        }
        at = layers, left = pass ? LAYERS * A_LAYER : FIRST, in_head = false;
      } else {
        at = heads + (size_t)(pass - 1) * BLOCKS * 2 * CHUNK, left = 2, in_head = true;
      }
    }
    const u8 *now = at;
    at += CHUNK, left--;
    return now;
  }
};
// Copies chunks to their places as these come free, and asks for those AHEAD of them to be brought into the L2 cache:
// so memory is read on while all places are full.
__device__ void copy_ahead(const Arguments &a, u8 *room, u64 *full, u64 *empty, int b) {
  Stream stream(a, b), ahead(a, b);
  auto prefetch = [&]() {
    if (const u8 *from = ahead.next())
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(CHUNK) : "memory");
  };
  for (int i = 0; i < PLACES; i++) ahead.next();
  for (int i = 0; i < AHEAD; i++) prefetch();
  int at = 0;
  u32 phase = 1;
  while (const u8 *from = stream.next()) {
    await_barrier(empty + at, phase);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(full + at)), "r"(CHUNK)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(room + at * CHUNK)),
                 "l"(from), "r"(CHUNK), "r"(shared_at(full + at))
                 : "memory");
    if (AHEAD) prefetch();
    if (++at == PLACES) at = 0, phase ^= 1;
  }
}
extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) frame_solo(const Arguments a) {
  extern __shared__ __align__(128) u8 room[];
  u16 *const mailbox = held((u16 *)a.mail);
  const int tid = threadIdx.x, lane = tid & 31, w = __shfl_sync(~0u, tid >> 5, 0), b = blockIdx.x, g = lane >> 2,
            q = lane & 3;
  constexpr int WIDEST = 52;
  u8 *cache = room + PLACES * CHUNK;  // [LAYERS][4 heads][key, value][KEPT][256 bytes], swizzled
  u8 *spare = cache + LAYERS * 4 * 2 * KEPT * 256;  // [4][key, value][256]: the last position, that no one needs later
  float *partial = (float *)(spare + 2048);  // [2][8][WIDEST]
  float *squares = partial + 2 * WARPS * WIDEST;  // [2][8]
  float *small = squares + 2 * WARPS;  // [128]
  u16 *inputs = (u16 *)(small + 128);  // [8][192]: a warp's inputs; its query in between; its query in between
  u16 *head_norms = inputs + WARPS * 192;  // [LAYERS][queries, keys][128]
  constexpr int SCALES = EIGHT ? LAYERS * 112 + PASSES * 16 : 0;
  float *scales = (float *)(head_norms +
                            LAYERS * 256);  // [LAYERS][qkv 32, output 16, gate-up 48, down 16], projection, heads [16]
  u64 *full = (u64 *)(scales + SCALES), *empty = full + PLACES;
  for (int i = tid; i < (LAYERS * 4 * 2 * KEPT * 256 + 2048) / 16; i += THREADS + 32)
    ((uint4 *)cache)[i] = make_uint4(0, 0, 0, 0);
  for (int i = tid; i < LAYERS * 256; i += THREADS + 32) head_norms[i] = (u16)pair(a.head_norms[i], 0.f);
  for (int i = tid; i < SCALES; i += THREADS + 32) scales[i] = a.scales[b * SCALES + i];
  if (tid == 0) {
    for (int i = 0; i < PLACES; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(full + i)));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(shared_at(empty + i)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
#ifdef LOST  // testing: a block that never comes
  if (b == LOST) return;
#endif
  if (w == WARPS) {
    if (lane == 0 && !CHAIN_ONLY) copy_ahead(a, room, full, empty, b);
    return;
  }

  constexpr u32 N_HID = P * HID, N_LAYER = 4096 + 2048 + 2 * N_HID + FFN;  // places of `output` heads are not used here
  constexpr u32 logit_mail = N_HID + PASSES * LAYERS * N_LAYER, code_mail = logit_mail + (PASSES - 1) * CODES * 2;
  auto mail = [&](u32 place) { return mailbox + place; };
  const u32 first_place = shared_at(room) + w * PART + lane * LANE;
  const u32 my_inputs = shared_at(inputs + w * 192);
  int at = 0;
  u32 phase = 0, turn = 0;
  float x[4] = {};  // the residual: inputs w*128 + lane*4 ..

  auto take = [&](auto count, uint4 *av) {  // chunks of four fragments
    u64 *before_at = empty;
#pragma unroll
    for (int c = 0; c < decltype(count)::value; c++) {
      if (!CHAIN_ONLY) await_barrier(full + at, phase);
      read_fragments(av + c * 4, first_place + at * CHUNK);
      if (c) give_back(before_at, av + c * 4 - 4, mailbox, lane);
      before_at = empty + at;
      if (++at == PLACES) at = 0, phase ^= 1;
    }
    give_back(before_at, av + decltype(count)::value * 4 - 4, mailbox, lane);
  };
  auto add_parts = [&](u32 m) {
    uint2 u, v;
    const u16 *from = mail(m + w * 128 + lane * 4);
    Patience patience;
    do u = peek2(from), v = peek2(from + HID), patience.spend();
    while (missing(max(max(u.x, u.y), max(v.x, v.y))));
    x[0] += low(u.x) + low(v.x), x[1] += high(u.x) + high(v.x), x[2] += low(u.y) + low(v.y),
        x[3] += high(u.y) + high(v.y);
  };
  auto set_inputs = [&](u32 u, u32 v) {
    __syncwarp();
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(my_inputs + lane * 8), "r"(u), "r"(v) : "memory");
    __syncwarp();
  };
  // products of MT tiles with the warp's 32*B inputs, to the desk
  auto product = [&](auto mt, auto blocks, auto squared, const uint4 *av) {
    constexpr int MT = decltype(mt)::value, B = decltype(blocks)::value;
    uint4 v[B];
#pragma unroll
    for (int kb = 0; kb < B; kb++)
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(v[kb].x), "=r"(v[kb].y), "=r"(v[kb].z), "=r"(v[kb].w)
                   : "r"(my_inputs + kb * 64 + q * 16)
                   : "memory");
    float c[2][MT][4] = {};  // two sums: half the chain of dependent products
#pragma unroll
    for (int kb = 0; kb < B; kb++) {
#pragma unroll
      for (int m = 0; m < MT; m++) multiply(c[kb & 1][m], av[2 * kb * MT + m], v[kb].x, v[kb].y);
#pragma unroll
      for (int m = 0; m < MT; m++) multiply(c[kb & 1][m], av[(2 * kb + 1) * MT + m], v[kb].z, v[kb].w);
    }
    if (decltype(squared)::value) {
      const float s = warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
      if (lane == 0) squares[(turn & 1) * WARPS + w] = s;
    }
    float *p = partial + ((turn & 1) * WARPS + w) * WIDEST + g;
    if (q == 0)
#pragma unroll
      for (int m = 0; m < MT; m++) p[m * 16] = c[0][m][0] + c[1][m][0], p[m * 16 + 8] = c[0][m][2] + c[1][m][2];
  };
  auto sum2 = [&](int n) {
    const float *p = partial + (turn & 1) * WARPS * WIDEST + n;
    float2 s = {0, 0};
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float2 v = *(const float2 *)(p + i * WIDEST);
      s.x += v.x, s.y += v.y;
    }
    return s;
  };
  auto scale = [&]() {
    const float4 c = *(const float4 *)(squares + (turn & 1) * WARPS),
                 d = *(const float4 *)(squares + (turn & 1) * WARPS + 4);
    return rsqrtf(((c.x + c.y) + (c.z + c.w) + (d.x + d.y) + (d.z + d.w)) * (1.f / HID) + 1e-6f);
  };
  auto by = [&](int i) { return EIGHT ? scales[i] : 1.f; };
  auto post_part = [&](u32 m, int of) {
    if (w == 0 && lane < 8) {
      const float2 s = sum2(lane * 2);
      post(
          mail(m + (b & 1) * HID + (b >> 1) * 16 + lane * 2),
          pair(s.x * by(of + lane * 2), s.y * by(of + lane * 2 + 1)));
    }
    turn++;
  };

  {
    uint4 av[8];
    take(IC<2>(), av);
    const uint2 h = __ldg((const uint2 *)(a.hidden + (b & 1) * 1024 + w * 128 + lane * 4));
    set_inputs(h.x, h.y);
    product(IC<1>(), IC<4>(), IC<0>(), av);
    meet();
    post_part(0, LAYERS * 112);
  }
  for (int pass = 0; pass < PASSES; pass++) {
    const float4 cosine = *(const float4 *)(a.rotary + pass * 128 + (lane & 15) * 4);
    float4 sine = *(const float4 *)(a.rotary + pass * 128 + 64 + (lane & 15) * 4);
    if (lane < 16) sine = make_float4(-sine.x, -sine.y, -sine.z, -sine.w);
    if (pass == 0) {
      const float4 bias = *(const float4 *)(a.bias + w * 128 + lane * 4);
      x[0] = bias.x, x[1] = bias.y, x[2] = bias.z, x[3] = bias.w;
      add_parts(0);
    } else {
      const int code = pass == 1 || a.forced ? a.codes[pass - 1] : await1(mail(code_mail + (pass - 2) * 2));
      const uint2 v = __ldg(
          (const uint2 *)(a.tables + ((size_t)(pass - 1) * CODES + (code & (CODES - 1))) * HID + w * 128 + lane * 4));
      x[0] = low(v.x), x[1] = high(v.x), x[2] = low(v.y), x[3] = high(v.y);
    }
    for (int l = 0; l < LAYERS; l++) {
      const u32 m_qkv = N_HID + (pass * LAYERS + l) * N_LAYER, m_out = m_qkv + 4096 + 2048, m_act = m_out + N_HID,
                m_down = m_act + FFN;
      {
        uint4 av[16];
        take(IC<4>(), av);
        if (l) add_parts(m_down - N_LAYER);
        set_inputs(pair(x[0], x[1]), pair(x[2], x[3]));
        product(IC<2>(), IC<4>(), IC<1>(), av);
        meet();
        if (w == 0 && lane < 16) {
          const float2 s = sum2(lane * 2);
          const float r = scale();
          post(
              mail(m_qkv + b * 32 + lane * 2),
              pair(s.x * r * by(l * 112 + lane * 2), s.y * r * by(l * 112 + lane * 2 + 1)));
        }
        turn++;
      }
      {  // attention of query head (b & 1) * 8 + w, whose output is this warp's part of the inputs of `output`
        uint4 av[8];
        const uint2 wq = *(const uint2 *)(head_norms + l * 256 + lane * 4),
                    wk = *(const uint2 *)(head_norms + l * 256 + 128 + lane * 4);
        if (!(pass == 0 && l == LAYERS - 1)) take(IC<2>(), av);
        const int head = (b & 1) * 8 + w, kv = head >> 1, mine = w >> 1;
        const u16 *m = mail(m_qkv + lane * 4);
        uint2 qv, kk, vv;
        Patience patience;
        do
          qv = peek2(m + head * 128), kk = peek2(m + 2048 + kv * 128), vv = peek2(m + 3072 + kv * 128),
          patience.spend();
        while (missing(max(qv.x, qv.y)) || missing(max(kk.x, kk.y)) || missing(max(vv.x, vv.y)));
        float y[4] = {low(qv.x), high(qv.x), low(qv.y), high(qv.y)},
              z[4] = {low(kk.x), high(kk.x), low(kk.y), high(kk.y)};
        const float sy = rsqrtf(warp_sum(y[0] * y[0] + y[1] * y[1] + y[2] * y[2] + y[3] * y[3]) * 0.0078125f + 1e-6f) *
            0.12751743f;  // 1 / sqrt(128), log2(e)
        const float sz = rsqrtf(warp_sum(z[0] * z[0] + z[1] * z[1] + z[2] * z[2] + z[3] * z[3]) * 0.0078125f + 1e-6f);
        const float fq[4] = {low(wq.x), high(wq.x), low(wq.y), high(wq.y)},
                    fk[4] = {low(wk.x), high(wk.x), low(wk.y), high(wk.y)};
        const float cs[4] = {cosine.x, cosine.y, cosine.z, cosine.w}, sn[4] = {sine.x, sine.y, sine.z, sine.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          y[i] *= sy * fq[i], z[i] *= sz * fk[i];
          y[i] = y[i] * cs[i] + __shfl_xor_sync(~0u, y[i], 16) * sn[i];
          z[i] = z[i] * cs[i] + __shfl_xor_sync(~0u, z[i], 16) * sn[i];
        }
        const u32 keys = shared_at(cache) + ((l * 4 + mine) * 2) * KEPT * 256, values = keys + KEPT * 256;
        const u32 last = shared_at(spare) + mine * 512;
        // row `pos` of a cache: 16 pieces of 16 bytes, piece c at c ^ (pos & 7)
        const u32 k_row = pass < KEPT ? keys + pass * 256 : last,
                  v_row = pass < KEPT ? values + pass * 256 : last + 256;
        const u32 spot = (((lane >> 1) ^ (pass & 7)) << 4) + (lane & 1) * 8;
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(k_row + spot), "r"(pair(z[0], z[1])), "r"(pair(z[2], z[3]))
                     : "memory");  // two warps write the same
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(v_row + spot), "r"(vv.x), "r"(vv.y) : "memory");
        u32 *qs = (u32 *)(inputs + w * 192);  // word j of the query: tile j/8, then as the product reads it
        {
          const int j = lane * 2, t = j >> 3, r = j & 7;
          u32 *to = qs + (t >> 1) * 16 + (r & 3) * 4 + (t & 1) * 2 + (r >> 2);
          to[0] = pair(y[0], y[1]), to[4] = pair(y[2], y[3]);
        }
        __syncwarp();
        uint4 vf[8], kf[8], qf[4];  // all reads first, then the products
        {
          const int row = lane & 15, pos = (lane & 7) + (lane >> 4) * 8, side = (lane >> 3) & 1;
          const u32 k_base = row < KEPT ? keys + row * 256 : last,
                    v_base = pos < KEPT ? values + pos * 256 : last + 256;
#pragma unroll
          for (int t = 0; t < 4; t++) qf[t] = *(const uint4 *)(qs + t * 16 + q * 4);
#pragma unroll
          for (int t = 0; t < 8; t++) kf[t] = matrix(k_base + (((t * 2 + (lane >> 4)) ^ (row & 7)) << 4));
#pragma unroll
          for (int t = 0; t < 8; t++) vf[t] = matrix_turned(v_base + (((t * 2 + side) ^ (pos & 7)) << 4));
        }
        float s[2][4] = {};
#pragma unroll
        for (int t = 0; t < 4; t++) {
          multiply(s[0], kf[2 * t], qf[t].x, qf[t].y);
          multiply(s[1], kf[2 * t + 1], qf[t].z, qf[t].w);
        }
        float s0 = g <= pass ? s[0][0] + s[1][0] : -1e30f, s1 = g + 8 <= pass ? s[0][2] + s[1][2] : -1e30f,
              most = fmaxf(s0, s1);
#pragma unroll
        for (int o = 4; o < 32; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
        s0 = exp2f(s0 - most), s1 = exp2f(s1 - most);
        float all = s0 + s1;
#pragma unroll
        for (int o = 4; o < 32; o *= 2) all += __shfl_xor_sync(~0u, all, o);
        const float share = __fdividef(1.f, all);
        s0 *= share, s1 *= share;
        const u32 p0 = pair(__shfl_sync(~0u, s0, q * 8), __shfl_sync(~0u, s0, q * 8 + 4)),
                  p1 = pair(__shfl_sync(~0u, s1, q * 8), __shfl_sync(~0u, s1, q * 8 + 4));
        {
          u16 *to = inputs + w * 192 + g;
          float c[8][4] = {};
#pragma unroll
          for (int t = 0; t < 8; t++) multiply(c[t], vf[t], p0, p1);
#pragma unroll
          for (int t = 0; t < 8; t++) {
            const u32 both = pair(c[t][0], c[t][2]);
            if (q == 0) to[t * 16] = (u16)both, to[t * 16 + 8] = (u16)(both >> 16);
          }
        }
        __syncwarp();
        if (pass == 0 && l == LAYERS - 1) break;
        product(IC<1>(), IC<4>(), IC<0>(), av);
        meet();
        post_part(m_out, l * 112 + 32);
      }
      {
        uint4 av[24];
        take(IC<6>(), av);
        add_parts(m_out);
        set_inputs(pair(x[0], x[1]), pair(x[2], x[3]));
        product(IC<3>(), IC<4>(), IC<1>(), av);
        meet();
        if (w == 0 && lane < 12) {  // in fours: gate, gate, up, up
          const float2 up = sum2(lane * 4 + 2), gate = sum2(lane * 4);
          const int of = l * 112 + 48 + lane * 4;
          const float r = scale(), g0 = gate.x * r * by(of), g1 = gate.y * r * by(of + 1);
          post(
              mail(m_act + b * 24 + lane * 2),
              pair(
                  __fdividef(g0, 1 + __expf(-g0)) * up.x * r * by(of + 2),
                  __fdividef(g1, 1 + __expf(-g1)) * up.y * r * by(of + 3)));
        }
        turn++;
      }
      {
        uint4 av[12], v = {};
        take(IC<3>(), av);
        if (lane < 24) v = await4(mail(m_act + (b & 1) * 1536 + w * 192 + lane * 8));
        __syncwarp();
        if (lane < 24)
          asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(my_inputs + lane * 16), "r"(v.x), "r"(v.y),
                       "r"(v.z), "r"(v.w)
                       : "memory");
        __syncwarp();
        product(IC<1>(), IC<6>(), IC<0>(), av);
        meet();
        post_part(m_down, l * 112 + 96);
      }
    }
    if (pass) {
      const u32 m_logits = logit_mail + (pass - 1) * CODES * 2;
      uint4 av[8];
      take(IC<2>(), av);
      add_parts((pass + 1) * LAYERS * N_LAYER);
      set_inputs(pair(x[0], x[1]), pair(x[2], x[3]));
      product(IC<1>(), IC<4>(), IC<1>(), av);
      meet();
      if (w == 0 && lane < 8) {
        const float2 s = sum2(lane * 2);
        const float r = scale();
        const int of = LAYERS * 112 + pass * 16 + lane * 2;
        post2(
            mail(m_logits + (b * 16 + lane * 2) * 2), __float_as_uint(s.x * r * by(of)),
            __float_as_uint(s.y * r * by(of + 1)));
      }
      turn++;
      if (b == 7) {
        const int code = sample(a, 0, pass, (u8 *)mail(m_logits), small, tid);
        if (tid == 0) {
          post(mail(code_mail + (pass - 1) * 2), code);
          if (!a.forced) a.codes[pass] = code;
        }
        meet();
      }
    }
  }
}
