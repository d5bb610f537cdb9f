// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A deterministic stand-in for libFuzzer: mutates texts a fixed number of times, then tries texts
// made to be large. Usage: sim_fuzz <opcodes.txt> [iterations [seed]]. Ends with 1 if a text takes
// seconds.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

const char* const kHead = ".version 9.0\n.target sm_90a\n.address_size 64\n";
const char* const kKernel = R"(.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .shared .align 16 .b8 dynamic[];
.global .align 8 .u64 table[3] = {f, generic(words)+4, 7};
.const .align 4 .f32 words[2] = {0f3F800000, 1.5};
.func (.param .b32 ret0) f(.param .b32 p0, .param .align 8 .b8 p1[12]) { .reg .b32 %r<9>; .reg .pred %q;
  .local .align 8 .b8 own[24]; ld.param.b32 %r1, [p0+0]; setp.eq.u32 %q, %r1, 0; @%q ret;
  { .param .b32 a; .param .align 8 .b8 b[12]; .param .b32 c; st.param.b32 [a], %r1;
    @!%q call.uni (c), f, (a, b); ld.param.b32 %r2, [c+0]; } st.param.b32 [ret0+0], %r2; ret; }
.visible .entry k(.param .u64 out, .param .align 64 .b8 big[128]) .maxntid 128, 1, 1 .minnctapersm 2 {
  .reg .pred %p<9>; .reg .b16 %h<32>; .reg .b32 %r<32>; .reg .b64 %d<32>; .reg .b128 %x<9>;
  .shared .align 4 .b8 s[64]; .loc 1 5 3, function_name $L+4, inlined_at 1 7 9
  TABLE: .branchtargets A, B; mov.u32 %r1, %tid.x; brx.idx %r1, TABLE;
A: { .reg .f32 %f<3>; L: add.rn.f32 %f1, %f2, 0f3F800000; @%p1 bra L; bra B; }
B: prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
  { .param .b32 a; .param .b32 c; mov.u64 %d3, f; call (c), %d3, (a), prototype; }
  ld.global.v4.u32 {%r1, %r2, _, %r4}, [%d1+-16]; mov.b64 {%r1, %r2}, %d4; bar.sync 0;
  OPCODE
END: ret; }
.file 1 "x.cu"
.section .debug_str { .b8 1, 2 }
)";

struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  size_t below(size_t n) { return n ? static_cast<size_t>(next() % n) : 0; }
};

void mutate(std::string* text, Random* random) {
  static const char* const kPieces[] = {
      "{",        "}",       "(",    ")",     "[",    "]",     ";",      ",",          "|",
      "!",        "@",       "-1",   "0x",    "0f",   "0d7FF", "<",      "4294967297", ">",
      "%r1",      "%p1",     "_",    "%x1",   ".reg", ".b8",   ".param", ".shared",    ".global",
      "= {1, 2}", "call",    "L:",   "\"",    "/*",   "\n",    ".v2",    ".align",     "9999999999",
      "::",       ".pragma", ".loc", ".file", "..",   "%tid.x"};
  switch (random->below(5)) {
    case 0:
      text->erase(random->below(text->size()), random->below(20));
      break;
    case 1:
      (*text)[random->below(text->size())] = static_cast<char>(random->next());
      break;
    case 2:
      text->insert(random->below(text->size()),
                   kPieces[random->below(sizeof(kPieces) / sizeof(kPieces[0]))]);
      break;
    case 3: {  // a piece again, elsewhere
      const std::string piece = text->substr(random->below(text->size()), 1 + random->below(60));
      text->insert(random->below(text->size()), piece);
      break;
    }
    default: {  // two words change places
      const size_t a = random->below(text->size()), b = random->below(text->size());
      std::swap((*text)[a], (*text)[b]);
      break;
    }
  }
}

std::string repeated(const std::string& piece, size_t times) {
  std::string all;
  all.reserve(piece.size() * times);
  for (size_t k = 0; k < times; ++k) all += piece;
  return all;
}

std::string numbered(const char* before, const char* after, int count) {
  std::string all;
  for (int k = 0; k < count; ++k) all += before + std::to_string(k) + after;
  return all;
}

// About 5 MB each, or counts that would be.
std::vector<std::string> large() {
  const std::string head = kHead, entry = head + ".entry k() { .reg .b32 %r<9>; .reg .pred %p;\n";
  return {
      entry + repeated("{", 1 << 20),
      entry + "mov.b32 %r1, " + repeated("{", 1 << 20),
      entry + "call " + repeated("(", 1 << 20),
      head + ".global .b8 x[] = " + repeated("{", 1 << 20),
      entry + repeated("add.u32 %r1, %r1, 1;\n", 200000) + "}",
      entry + numbered("L", ": @%p bra L0;\n", 15000) + "}",
      entry + ".reg .b32 %q<4000000000>; }",
      entry + numbered(".reg .b32 %q", "_<1000000>;", 100) + "}",
      head + ".global .b8 x[1099511627776] = {1};",
      head + ".global .b8 x[4294967296][4294967296][4294967296];",
      head + ".global .align 4294967297 .b8 x[4];",
      head + ".entry k(.param .b8 p[99999999999]) { ret; }",
      head + numbered(".func f", "() { ret; }\n", 100000) + ".entry k() { call f7; ret; }",
      head + ".func f0() { ret; }\n" +
          [] {
            std::string all;
            for (int k = 1; k < 60; ++k) {
              const std::string call = "call f" + std::to_string(k - 1) + "; ";
              all += ".func f" + std::to_string(k) + "() { " + call + call + "ret; }\n";
            }
            return all;
          }() +
          ".entry k() { call f59; ret; }",
      head + numbered(".global .b32 v", " = 1;\n", 150000),
      entry + repeated("// comment\n", 400000) + "ret; }",
      head + std::string(5 << 20, 'a'),
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> corpus = {std::string(kHead) + kKernel};
  if (argc > 1) {
    std::ifstream file(argv[1]);
    for (std::string line; std::getline(file, line);) {
      std::string text = corpus[0];
      text.replace(text.find("OPCODE"), 6, line + ";");
      corpus.push_back(std::move(text));
    }
  }
  const int iterations = argc > 2 ? std::atoi(argv[2]) : 1500;
  Random random{argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0x9E3779B97F4A7C15ull};
  for (int k = 0; k < iterations; ++k) {
    std::string text = corpus[random.below(corpus.size())];
    for (size_t n = 1 + random.below(6); n > 0 && !text.empty(); --n) mutate(&text, &random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  for (const std::string& text : large()) {
    const std::clock_t begin = std::clock();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    const auto seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (seconds > 1)
      std::printf("%zu bytes took %.1f s: %.75s\n", text.size(), seconds, text.c_str());
  }
  std::printf("%d mutations\n", iterations);
  return 0;
}
