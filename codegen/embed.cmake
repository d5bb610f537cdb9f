# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Turns templates/ into a table of strings:
#   cmake -DROOT=<templates folder> -DNAMES="a.cuh|b.cuh" -DOUTPUT=<file.cpp> -P embed.cmake
# The first line of every text gives the name that diagnostics and line tables show, so that no
# place of this machine enters the compiled bytes.
string(REPLACE "|" ";" names "${NAMES}")
list(SORT names COMPARE STRING)
set(table "// Made from templates/ by codegen/embed.cmake.\n#include \"codegen/templates.h\"\n\n")
string(APPEND table "namespace lathe {\n\nconst std::vector<TemplateFile>& template_files() {\n")
string(APPEND table "  static const std::vector<TemplateFile> files = {\n")
foreach(name IN LISTS names)
  file(READ "${ROOT}/${name}" body)
  string(APPEND table "      {\"${name}\", R\"lathe(#line 1 \"/lathe/${name}\"\n${body})lathe\"},\n")
endforeach()
string(APPEND table "  };\n  return files;\n}\n\n}  // namespace lathe\n")
file(WRITE "${OUTPUT}" "${table}")
