// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are fat binaries that NVIDIA's tool made of one text, a kernel `add` for sm_80:
//   fatbinary --create OUT --64 --compress-mode=MODE --image3=kind=ptx,sm=80,file=add.ptx
// It adds the words of its second array to those of its first one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace sim::tests {

struct FatText {
  unsigned arch;  // 80 of sm_80
  std::string ptx;
};

// A fat binary of texts that are not compressed.
inline std::vector<uint64_t> fat_binary_of(const std::vector<FatText>& texts) {
  constexpr size_t kHeaderBytes = 16, kEntryBytes = 64;
  std::vector<uint64_t> image(kHeaderBytes / 8);
  for (const FatText& each : texts) {
    const size_t entry = image.size() * 8, bytes = (each.ptx.size() + 1 + 7) / 8 * 8;
    image.resize((entry + kEntryBytes + bytes) / 8);
    char* at = reinterpret_cast<char*>(image.data()) + entry;
    const auto put = [at](size_t offset, auto value) {
      std::memcpy(at + offset, &value, sizeof value);
    };
    put(0, uint16_t{1});  // PTX
    put(2, uint16_t{0x0101});
    put(4, uint32_t{kEntryBytes});
    put(8, uint64_t{bytes});
    put(28, uint32_t{each.arch});
    std::memcpy(at + kEntryBytes, each.ptx.c_str(), each.ptx.size() + 1);
  }
  image[0] = 0xBA55ED50ull | 1ull << 32 | uint64_t{kHeaderBytes} << 48;
  image[1] = image.size() * 8 - kHeaderBytes;
  return image;
}

inline std::vector<uint64_t> fat_binary_of(const std::string& ptx) {
  return fat_binary_of(std::vector<FatText>{{80, ptx}});
}

constexpr char kFatLz4[] =  // MODE speed
    "50ed55ba01001000c001000000000000010001015000000070010000000000006a01000040000000000008005000"
    "00000000000000000000112000000000000000000000000000001802000000000000480000000000000000000000"
    "00000000f8402e76657273696f6e20382e300a2e74617267657420736d5f38300a2e616464726573735f73697a65"
    "2036340a2e76697369626c65202e656e74727920616464282e706172616d202e75363420612c200f0017620f00f3"
    "073332206e290a7b0a2e726567202e707265642025703b0f00f5036233322025692c20256e2c2025742c2025781a"
    "00f10336342025612c2025622c20256f3b0a6d6f764c00012e007763746169642e7816000040002b6e7415000051"
    "000414005661642e6c6f4200057400423b0a6c64ca00054900c25b6e5d3b0a736574702e6765150014703200d83b"
    "0a4025702062726120454e443b0003ae003c5b615d1600f300622c205b625d3b0a6d756c2e7769645200126f5200"
    "65343b0a6164643f0001f100176f140016620101926c642e676c6f62616c410053782c205b256e00081800107418"
    "00007000015800032a00002e0000eb002873744400004000001c00f0003b0a454e443a0a7265743b0a7d0a000000"
    "00000000";
constexpr char kFatZstd[] =  // MODE size
    "50ed55ba010010006801000000000000010001015000000018010000000000001101000040000000000008005000"
    "00000000000000000000118000000000000000000000000000001802000000000000480000000000000000000000"
    "0000000028b52ffd6018013d0800e2cc271d506f1b0cff6672df6897d48c048dab8911e03f4f9b452b3b9879930c"
    "0b80bca4fa0533f1dfffe03469dcaf35ddcf9d5331cf99641be474f3a2c15086ad4f52a47a56b3cfaf98eae11cde"
    "52bdb6ceffce4dd6197f04dae839a95e739abc4b3a60a9d593d4176c16dcb4a4c069c1d03a60650ed0aac3909f0d"
    "b8b352e0bbb5ba5ab3c8a24de6a0abc22224c605dd190171a2fe6a20ff266111ea1e8b70451b34a8216d2422558a"
    "b43507a066022bded0444c4a810a8d015009bbf243e6d56257ae37fb419ea0c85ead2ba165ac316ecb8885ffacd5"
    "79abd2f07b625baf37afbee79847f69aba31567468018d48b894fbb82cd88ab15ed867a1147a3d05ad383255f184"
    "1a00000000000000";

}  // namespace sim::tests
