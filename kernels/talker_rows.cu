// One position of up to 16 rows through the backbone's layers, and its head, in one launch. See talker_step.py.
// Each block owns 16 places of the residual; weights come through the ring a chunk (four fragments a warp) at a time
// and are used at once for all rows. Attention is split over the blocks by row, key/value head and part of the
// positions. Compile-time: HID, FFN, LAYERS, VOCAB, NT (tiles of 8 rows), PLACES.
struct Arguments {
  const u8 *layers;          // [128][LAYERS*48][8][2048]
  const u8 *head;            // [VOCAB/32][8][8][2048]
  const float *head_norms;   // [LAYERS][queries, keys][128]
  const float *norm;         // [HID]
  const float *rotary;       // [length][cosines, sines][64]
  const u16 *x;              // [rows][HID]
  u16 *hidden;               // [rows][HID], after the last norm
  float *logits;             // [rows][VOCAB]
  u16 *keys, *values;        // [LAYERS][pages][8][PAGE][128]
  const long long *positions;
  const int *tables;         // [rows][row_pages]
  const int *active;         // of a row that is not, nothing is read and nothing kept
  u8 *mail;
  const float *scales;       // EIGHT: [128][LAYERS*160 + 32], by block: qkv 32, output 16, gate-up 96, down 16; head
  int rows, pages, row_pages, parts;
};
static_assert(HID == 2048 && FFN == 6144 && WARPS == 8 && PART == 128 * LANE && NT <= 2, "cut for these");
// Four positions that are read together lie in one page.
constexpr int A_LAYER = 48, WIDEST = 100, HEAD_BLOCKS = VOCAB / 32, PART_WORDS = 260;

__device__ void copy_ahead(const Arguments &a, u8 *room, u64 *full, u64 *empty, int b) {
  int at = 0;
  u32 phase = 1;
  auto copy = [&](const u8 *from, int count) {
    for (int i = 0; i < count; i++, from += CHUNK) {
      await_barrier(empty + at, phase);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(full + at)), "r"(CHUNK)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_at(room + at * CHUNK)),
                   "l"(from), "r"(CHUNK), "r"(shared_at(full + at))
                   : "memory");
      if (++at == PLACES) at = 0, phase ^= 1;
    }
  };
  copy(a.layers + (size_t)b * LAYERS * A_LAYER * CHUNK, LAYERS * A_LAYER);
  if (b < HEAD_BLOCKS) copy(a.head + (size_t)b * 8 * CHUNK, 8);
}

// Eight sums over a warp at once: after it, sum j is in the lanes whose bits 4, 3, 2 spell j.
__device__ __forceinline__ float eight_sums(float (&r)[8], int lane) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float give = lane & 16 ? r[i] : r[i + 4], keep = lane & 16 ? r[i + 4] : r[i];
    r[i] = keep + __shfl_xor_sync(~0u, give, 16);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float give = lane & 8 ? r[i] : r[i + 2], keep = lane & 8 ? r[i + 2] : r[i];
    r[i] = keep + __shfl_xor_sync(~0u, give, 8);
  }
  const float give = lane & 4 ? r[0] : r[1], keep = lane & 4 ? r[1] : r[0];
  float s = keep + __shfl_xor_sync(~0u, give, 4);
  s += __shfl_xor_sync(~0u, s, 2);
  return s + __shfl_xor_sync(~0u, s, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) talker_rows(const Arguments a) {
  extern __shared__ __align__(128) u8 room[];
  u16 *const mailbox = held((u16 *)a.mail);
  const int tid = threadIdx.x, lane = tid & 31, w = __shfl_sync(~0u, tid >> 5, 0), b = blockIdx.x, g = lane >> 2,
            q = lane & 3, rows = a.rows;
  float *partial = (float *)(room + PLACES * CHUNK);       // [2][8 warps][8 rows][WIDEST]
  float *squares = partial + 2 * WARPS * 8 * WIDEST;       // [2][8][8]
  float *mixed = squares + 128;                            // [8][2][128]: each warp's share of attention
  float *shares = mixed + WARPS * 256;                     // [8][2][2]: largest score, sum
  u16 *head_norms = (u16 *)(shares + WARPS * 4);           // [LAYERS][queries, keys][128]
  float *scales = (float *)(head_norms + LAYERS * 256);    // [LAYERS*160 + 32] with EIGHT
  u32 *spots = (u32 *)(scales + (EIGHT ? LAYERS * 160 + 32 : 0));   // of the row attended to: each page's first line
  u64 *full = (u64 *)(spots + ((a.row_pages + 3) & ~3)), *empty = full + PLACES;
  for (int i = tid; i < LAYERS * 256; i += THREADS + 32) head_norms[i] = (u16)pair(a.head_norms[i], 0.f);
  {
    const int item = b % (rows * 8);
    for (int i = tid; i < a.row_pages; i += THREADS + 32)
      spots[i] = (a.tables[(item >> 3) * a.row_pages + i] * 8 + (item & 7)) * PAGE;
  }
  if (EIGHT)
    for (int i = tid; i < LAYERS * 160 + 32; i += THREADS + 32) scales[i] = a.scales[b * (LAYERS * 160 + 32) + i];
  if (tid == 0) {
    for (int i = 0; i < PLACES; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(full + i)));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(shared_at(empty + i)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
#ifdef LOST   // testing: a block that never comes
  if (b == LOST) return;
#endif
  if (w == WARPS) {
    if (lane == 0) copy_ahead(a, room, full, empty, b);
    return;
  }
  const u32 N_PARTS = BLOCKS * PART_WORDS * 2;             // mail, in units of 16 bits
  const u32 N_LAYER = rows * (4096 + 2048 + HID + FFN + HID) + N_PARTS;
  auto mail = [&](u32 place) { return mailbox + place; };
  const u32 first_place = shared_at(room) + w * PART + lane * LANE;
  int at = 0;
  u32 phase = 0, turn = 0;

  auto stage = [&](auto mt, auto bodies, auto squared, auto row_at, auto before, auto finish) {
    constexpr int MT = decltype(mt)::value, BODIES = decltype(bodies)::value, KB = MT == 1 ? 2 : 1, F = 2 * MT * KB;
    float c[NT][MT][4] = {}, s[NT][4] = {};
    uint4 v[NT][KB], ahead[NT][KB];
    const u16 *from[NT];
    u32 word[NT];
#pragma unroll
    for (int t = 0; t < NT; t++) {
      from[t] = row_at(min(t * 8 + g, rows - 1)) + q * 8;
#pragma unroll
      for (int k = 0; k < KB; k++) v[t][k] = peek(from[t] + k * 32);
    }
#pragma unroll 1
    for (int i = 0; i < BODIES; i++) {
      bool again = false;
#pragma unroll
      for (int t = 0; t < NT; t++)
#pragma unroll
        for (int k = 0; k < KB; k++) again |= hollow(v[t][k]);
      Patience patience;
      while (again) {
        again = false;
        patience.spend();
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
          for (int k = 0; k < KB; k++) v[t][k] = peek(from[t] + k * 32);
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
          for (int k = 0; k < KB; k++) again |= hollow(v[t][k]);
      }
      __syncwarp();
      const int on = i + 1 < BODIES ? KB * 32 : 0;
#pragma unroll
      for (int t = 0; t < NT; t++) {
        from[t] += on;
#pragma unroll
        for (int k = 0; k < KB; k++) ahead[t][k] = peek(from[t] + k * 32);
      }
      uint4 av[F];
      u64 *before_at = empty;
#pragma unroll
      for (int j = 0; j < F / 4; j++) {
        await_barrier(full + at, phase);
        read_fragments(av + j * 4, first_place + at * CHUNK);
        if (j) give_back(before_at, av + j * 4 - 4, mailbox, lane);
        before_at = empty + at;
        if (++at == PLACES) at = 0, phase ^= 1;
      }
      give_back(before_at, av + F - 4, mailbox, lane);
#pragma unroll
      for (int k = 0; k < KB; k++)
#pragma unroll
        for (int t = 0; t < NT; t++) {
#pragma unroll
          for (int m = 0; m < MT; m++) multiply(c[t][m], av[2 * k * MT + m], v[t][k].x, v[t][k].y);
#pragma unroll
          for (int m = 0; m < MT; m++) multiply(c[t][m], av[(2 * k + 1) * MT + m], v[t][k].z, v[t][k].w);
          if (decltype(squared)::value) {
            multiply(s[t], make_uint4(v[t][k].x, 0, v[t][k].y, 0), v[t][k].x, v[t][k].y);
            multiply(s[t], make_uint4(v[t][k].z, 0, v[t][k].w, 0), v[t][k].z, v[t][k].w);
          }
        }
#pragma unroll
      for (int t = 0; t < NT; t++)
#pragma unroll
        for (int k = 0; k < KB; k++) v[t][k] = ahead[t][k];
    }
#pragma unroll
    for (int t = 0; t < NT; t++) word[t] = before(t);
#pragma unroll
    for (int t = 0; t < NT; t++) {
      const int desk = turn & 1;
      float *p = partial + ((desk * WARPS + w) * 8 + q * 2) * WIDEST + g;
      if (q * 2 < rows)
#pragma unroll
        for (int m = 0; m < MT; m++) {
          p[m * 16] = c[t][m][0], p[m * 16 + 8] = c[t][m][2];
          p[WIDEST + m * 16] = c[t][m][1], p[WIDEST + m * 16 + 8] = c[t][m][3];
        }
      if (decltype(squared)::value && q == g >> 1) squares[desk * 64 + w * 8 + g] = g & 1 ? s[t][1] : s[t][0];
      meet();
      finish(t, desk, word[t]);
      turn++;
    }
  };
  auto sum2 = [&](int desk, int row, int n) {
    const float *p = partial + (desk * WARPS * 8 + row) * WIDEST + n;
    float2 s = {0, 0};
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float2 v = *(const float2 *)(p + i * 8 * WIDEST);
      s.x += v.x, s.y += v.y;
    }
    return s;
  };
  auto scale = [&](int desk, int row) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) s += squares[desk * 64 + i * 8 + row];
    return rsqrtf(s * (1.f / HID) + 1e-6f);
  };
  auto by = [&](int i) { return EIGHT ? scales[i] : 1.f; };
  auto nothing = [&](int t) { return 0u; };
  auto own = [&](auto bodies, auto row_at, auto old, u32 m, int of) {
    const int column = b * 16 + (tid & 7) * 2;
    stage(
        IC<1>(), bodies, IC<0>(), row_at,
        [&](int t) {
          const int row = t * 8 + (tid >> 3);
          return tid < 64 && row < rows ? await1(old(row) + column) : 0u;
        },
        [&](int t, int desk, u32 word) {
          const int row = t * 8 + (tid >> 3);
          if (tid < 64 && row < rows) {
            const float2 s = sum2(desk, tid >> 3, (tid & 7) * 2);
            post(
                mail(m + row * HID + column),
                pair(low(word) + s.x * by(of + (tid & 7) * 2), high(word) + s.y * by(of + (tid & 7) * 2 + 1)));
          }
        });
  };

  // this block's share of attention
  const int pairs = rows * 8, mine = b % pairs, part = b / pairs, row = mine >> 3, kv = mine & 7;
  const bool attends = part < a.parts;
  const bool writes_now = a.active[row] != 0;
  const int now = min((int)a.positions[row], a.row_pages * PAGE - 1), past = writes_now ? now : 0;
  const int share = ((past + a.parts - 1) / a.parts + 3) & ~3, first = part * share, last = min(first + share, past);
  const float4 cosine = *(const float4 *)(a.rotary + (size_t)now * 128 + (lane & 15) * 4);
  float4 sine = *(const float4 *)(a.rotary + (size_t)now * 128 + 64 + (lane & 15) * 4);
  if (lane < 16) sine = make_float4(-sine.x, -sine.y, -sine.z, -sine.w);
  const float cs[4] = {cosine.x, cosine.y, cosine.z, cosine.w}, sn[4] = {sine.x, sine.y, sine.z, sine.w};
  auto turned = [&](uint2 u, const u16 *norm, float by, float (&y)[4]) {
    const uint2 n = *(const uint2 *)(norm + lane * 4);
    y[0] = low(u.x), y[1] = high(u.x), y[2] = low(u.y), y[3] = high(u.y);
    const float f[4] = {low(n.x), high(n.x), low(n.y), high(n.y)};
    const float r = rsqrtf(warp_sum(y[0] * y[0] + y[1] * y[1] + y[2] * y[2] + y[3] * y[3]) * 0.0078125f + 1e-6f);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      y[i] *= r * f[i];
      y[i] = (y[i] * cs[i] + __shfl_xor_sync(~0u, y[i], 16) * sn[i]) * by;
    }
  };

  for (int l = 0; l < LAYERS; l++) {
    const u32 m_qkv = l * N_LAYER, m_att = m_qkv + rows * 4096, m_out = m_att + rows * 2048, m_act = m_out + rows * HID,
              m_down = m_act + rows * FFN, m_parts = m_down + rows * HID;
    auto entry = [&](int r) -> const u16 * { return l ? mail(m_down - N_LAYER + r * HID) : a.x + r * HID; };
    stage(
        IC<2>(), IC<8>(), IC<1>(), [&](int r) { return entry(r) + w * 256; }, nothing,
        [&](int t, int desk, u32) {
          const int r8 = tid >> 4, r = t * 8 + r8, n = (tid & 15) * 2;
          if (tid < 128 && r < rows) {
            const float2 s = sum2(desk, r8, n);
            const float norm = scale(desk, r8);
            post(
                mail(m_qkv + r * 4096 + b * 32 + n),
                pair(s.x * norm * by(l * 160 + n), s.y * norm * by(l * 160 + n + 1)));
          }
        });
    if (attends) {
      u16 *kc = a.keys + (size_t)l * a.pages * (8 * PAGE * 128) + lane * 4,
          *vc = a.values + (size_t)l * a.pages * (8 * PAGE * 128) + lane * 4;
      const u16 *norms = head_norms + l * 256, *m = mail(m_qkv + row * 4096 + lane * 4);
      uint2 kw[4], vw[4];
      auto line = [&](int p) { return (size_t)(spots[p / PAGE] + p % PAGE) * 128; };
      auto read = [&](int from) {
        const int end = max(last - 1, 0), begin = min(from, end & ~3);
        const size_t at = line(begin);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int off = min(i, end - begin) * 128;
          kw[i] = __ldg((const uint2 *)(kc + at + off)), vw[i] = __ldg((const uint2 *)(vc + at + off));
        }
      };
      int base = first + w * 4;
      read(base);
      uint2 u0, u1, ku = {}, vu = {};
      const bool writes = part == 0 && w == 0;
      Patience patience;
      do {
        patience.spend();
        u0 = peek2(m + kv * 256), u1 = peek2(m + kv * 256 + 128);
        if (writes) ku = peek2(m + 2048 + kv * 128), vu = peek2(m + 3072 + kv * 128);
      } while (missing(max(u0.x, u0.y)) || missing(max(u1.x, u1.y)) || missing(max(ku.x, ku.y)) ||
               missing(max(vu.x, vu.y)));
      __syncwarp();
      float y0[4], y1[4], m0 = -1e30f, m1 = -1e30f, l0 = 0, l1 = 0, o0[4] = {}, o1[4] = {};
      turned(u0, norms, 0.12751743f, y0);                  // 1 / sqrt(128) and log2(e)
      turned(u1, norms, 0.12751743f, y1);
      if (writes) {
        float z[4];
        turned(ku, norms + 128, 1.f, z);
        const uint2 k2 = make_uint2(pair(z[0], z[1]), pair(z[2], z[3]));
        if (writes_now) *(uint2 *)(kc + line(now)) = k2, *(uint2 *)(vc + line(now)) = vu;
        m0 = warp_sum(y0[0] * z[0] + y0[1] * z[1] + y0[2] * z[2] + y0[3] * z[3]),
        m1 = warp_sum(y1[0] * z[0] + y1[1] * z[1] + y1[2] * z[2] + y1[3] * z[3]);
        l0 = l1 = 1;
        o0[0] = o1[0] = low(vu.x), o0[1] = o1[1] = high(vu.x), o0[2] = o1[2] = low(vu.y), o0[3] = o1[3] = high(vu.y);
      }
#pragma unroll 1
      for (; base < last; base += WARPS * 4) {
        float r[8], v[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float k[4] = {low(kw[i].x), high(kw[i].x), low(kw[i].y), high(kw[i].y)};
          r[i] = y0[0] * k[0] + y0[1] * k[1] + y0[2] * k[2] + y0[3] * k[3];
          r[i + 4] = y1[0] * k[0] + y1[1] * k[1] + y1[2] * k[2] + y1[3] * k[3];
          v[i][0] = low(vw[i].x), v[i][1] = high(vw[i].x), v[i][2] = low(vw[i].y), v[i][3] = high(vw[i].y);
        }
        const int here = base;
        read(base + WARPS * 4);
        const float sums = eight_sums(r, lane);
        float e[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
          e[j] = __shfl_sync(~0u, sums, (j & 4) * 4 + (j & 2) * 4 + (j & 1) * 4);
          if (here + (j & 3) >= last) e[j] = -1e30f;
        }
        const float n0 = fmaxf(fmaxf(m0, fmaxf(e[0], e[1])), fmaxf(e[2], e[3])),
                    n1 = fmaxf(fmaxf(m1, fmaxf(e[4], e[5])), fmaxf(e[6], e[7]));
        const float f0 = exp2f(m0 - n0), f1 = exp2f(m1 - n1);
        m0 = n0, m1 = n1, l0 *= f0, l1 *= f1;
#pragma unroll
        for (int i = 0; i < 4; i++) o0[i] *= f0, o1[i] *= f1;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float p0 = exp2f(e[j] - m0), p1 = exp2f(e[j + 4] - m1);
          l0 += p0, l1 += p1;
#pragma unroll
          for (int i = 0; i < 4; i++) o0[i] += p0 * v[j][i], o1[i] += p1 * v[j][i];
        }
      }
      *(float4 *)(mixed + w * 256 + lane * 4) = make_float4(o0[0], o0[1], o0[2], o0[3]);
      *(float4 *)(mixed + w * 256 + 128 + lane * 4) = make_float4(o1[0], o1[1], o1[2], o1[3]);
      if (lane == 0) *(float4 *)(shares + w * 4) = make_float4(m0, l0, m1, l1);
      meet();
      const int h = tid >> 7;
      float most = -1e30f, all = 0, o = 0;
#pragma unroll
      for (int i = 0; i < WARPS; i++) most = fmaxf(most, shares[i * 4 + h * 2]);
#pragma unroll
      for (int i = 0; i < WARPS; i++) {
        const float f = exp2f(shares[i * 4 + h * 2] - most);
        all += f * shares[i * 4 + h * 2 + 1], o += f * mixed[i * 256 + tid];
      }
      if (a.parts > 1) {
        u32 *to = (u32 *)mail(m_parts) + (mine * a.parts + part) * PART_WORDS;
        post(to + tid, __float_as_uint(o));
        if ((tid & 127) == 0)
          post(to + 256 + h * 2, __float_as_uint(most)), post(to + 257 + h * 2, __float_as_uint(all));
        if (part == 0) {
          const u32 *of = (u32 *)mail(m_parts) + mine * a.parts * PART_WORDS;
          float top = -1e30f;
          all = o = 0;
          for (int p0 = 0; p0 < a.parts; p0 += 4) {
            u32 vo[4], vm[4], vl[4];
            bool again;
            Patience longer;
            do {
              again = false;
              longer.spend();
#pragma unroll
              for (int i = 0; i < 4; i++) {
                const u32 *f = of + min(p0 + i, a.parts - 1) * PART_WORDS;
                vo[i] = peek1(f + tid), vm[i] = peek1(f + 256 + h * 2), vl[i] = peek1(f + 257 + h * 2);
              }
#pragma unroll
              for (int i = 0; i < 4; i++) again |= missing(max(max(vo[i], vm[i]), vl[i]));
            } while (again);
#pragma unroll
            for (int i = 0; i < 4; i++)
              if (p0 + i < a.parts) {
                const float mm = __uint_as_float(vm[i]), next = fmaxf(top, mm), f = exp2f(top - next),
                            e = exp2f(mm - next);
                all = all * f + e * __uint_as_float(vl[i]), o = o * f + e * __uint_as_float(vo[i]), top = next;
              }
          }
          __syncwarp();
        }
      }
      const float y = __fdividef(o, all), z = __shfl_xor_sync(~0u, y, 1);
      if (part == 0 && (tid & 1) == 0) post(mail(m_att + row * 2048 + (kv * 2 + h) * 128 + (tid & 127)), pair(y, z));
    }
    own(IC<4>(), [&](int r) { return mail(m_att + r * 2048 + w * 256); }, entry, m_out, l * 160 + 32);
    stage(
        IC<6>(), IC<8>(), IC<1>(), [&](int r) { return mail(m_out + r * HID + w * 256); }, nothing,
        [&](int t, int desk, u32) {
          const int r8 = tid / 24, r = t * 8 + r8, n = tid % 24;   // in fours: gate, gate, up, up
          if (tid < 192 && r < rows) {
            const float2 gate = sum2(desk, r8, n * 4), up = sum2(desk, r8, n * 4 + 2);
            const float norm = scale(desk, r8);
            const int of = l * 160 + 48 + n * 4;
            const float g0 = gate.x * norm * by(of), g1 = gate.y * norm * by(of + 1), u0 = up.x * norm * by(of + 2),
                        u1 = up.y * norm * by(of + 3);
            post(
                mail(m_act + r * FFN + b * 48 + n * 2),
                pair(__fdividef(g0, 1 + __expf(-g0)) * u0, __fdividef(g1, 1 + __expf(-g1)) * u1));
          }
        });
    own(
        IC<12>(), [&](int r) { return mail(m_act + r * FFN + w * 768); }, [&](int r) { return mail(m_out + r * HID); },
        m_down, l * 160 + 144);
  }
  const u32 m_last = LAYERS * N_LAYER - N_PARTS - rows * HID;
  if (b < HEAD_BLOCKS) {
    stage(
        IC<2>(), IC<8>(), IC<1>(), [&](int r) { return mail(m_last + r * HID + w * 256); }, nothing,
        [&](int t, int desk, u32) {
          const int r8 = tid >> 4, r = t * 8 + r8, n = (tid & 15) * 2;
          if (tid < 128 && r < rows) {
            const float2 s = sum2(desk, r8, n);
            const float norm = scale(desk, r8);
            *(float2 *)(a.logits + (size_t)r * VOCAB + b * 32 + n) = make_float2(
                s.x * norm * by(LAYERS * 160 + n), s.y * norm * by(LAYERS * 160 + n + 1));
          }
        });
  } else {
    for (int r = b - HEAD_BLOCKS; r < rows; r += BLOCKS - HEAD_BLOCKS) {   // the hidden row, for the code predictor
      const uint4 v = await4(mail(m_last + r * HID + tid * 8));
      const float f[8] = {low(v.x), high(v.x), low(v.y), high(v.y), low(v.z), high(v.z), low(v.w), high(v.w)};
      float s = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) s += f[i] * f[i];
      __syncwarp();
      s = warp_sum(s);
      if (lane == 0) squares[w] = s;
      meet();
      s = 0;
      for (int i = 0; i < WARPS; i++) s += squares[i];
      const float norm = rsqrtf(s * (1.f / HID) + 1e-6f);
      const float *n = a.norm + tid * 8;
      *(uint4 *)(a.hidden + (size_t)r * HID + tid * 8) = make_uint4(
          pair(f[0] * norm * n[0], f[1] * norm * n[1]), pair(f[2] * norm * n[2], f[3] * norm * n[3]),
          pair(f[4] * norm * n[4], f[5] * norm * n[5]), pair(f[6] * norm * n[6], f[7] * norm * n[7]));
      meet();
    }
  }
}
