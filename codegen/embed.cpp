// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Part of the build: turns templates/ into a table of strings, with the digest of each and what it
// reaches:
//
//   lathe_embed FOLDER OUTPUT.cpp NAME...
//
// Parameters name each other for the host, from the root of the tree; device text knows them
// without that folder. The first line of every text gives the name that diagnostics and line tables
// show, so that no place of this machine enters the compiled bytes.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "codegen/base/digest.h"
#include "codegen/includes.h"

namespace {

using Texts = std::map<std::string, std::string>;  // sorted by name, as the table is

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void reach(const Texts& texts, const std::string& name, std::set<std::string>* reached) {
  if (!reached->insert(name).second) return;
  lathe::for_each_include(texts.at(name), [&](std::string_view included) {
    const std::string other(included);
    if (other.rfind("caller/", 0) == 0) return true;  // the caller's
    if (texts.count(other) == 0) throw std::runtime_error(name + " includes unknown " + other);
    reach(texts, other, reached);
    return true;
  });
}

std::string table_of(const Texts& texts) {
  std::map<std::string, size_t> index;
  for (const auto& [name, text] : texts) index.emplace(name, index.size());
  std::string lists, rows;
  for (const auto& [name, text] : texts) {
    std::set<std::string> reached;
    reach(texts, name, &reached);
    const std::string list = "kReached" + std::to_string(index[name]);
    lists += "constexpr uint16_t " + list + "[] = {";
    for (const std::string& each : reached) lists += std::to_string(index[each]) + ", ";
    lists += "};\n";
    rows += "      {\"" + name + "\", R\"lathe(" + text + ")lathe\",\n       \"" +
            lathe::digest(text).hex() + "\", " + list + ", " + std::to_string(reached.size()) +
            "},\n";
  }
  return "// Made from templates/ by codegen/embed.cpp.\n#include \"codegen/templates.h\"\n\n"
         "namespace lathe {\nnamespace {\n\n" +
         lists +
         "\n}  // namespace\n\nconst std::vector<TemplateFile>& template_files() {\n"
         "  static const std::vector<TemplateFile> files = {\n" +
         rows + "  };\n  return files;\n}\n\n}  // namespace lathe\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "lathe_embed FOLDER OUTPUT.cpp NAME...\n";
    return 2;
  }
  try {
    Texts texts;
    for (int i = 3; i < argc; ++i) {
      const std::string name = argv[i];
      texts[name] = "#line 1 \"/lathe/" + name + "\"\n" +
                    lathe::for_device(read(std::string(argv[1]) + "/" + name));
    }
    std::ofstream out(argv[2], std::ios::binary);
    out << table_of(texts);
    out.close();
    if (!out) throw std::runtime_error(std::string("cannot write ") + argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "lathe_embed: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
