// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These say whether a kernel has mods: a Config without them says nothing about them.
#pragma once

namespace lathe {

template <class First, class Second>
struct Same {
  static constexpr bool kValue = false;
};
template <class Type>
struct Same<Type, Type> {
  static constexpr bool kValue = true;
};

template <class...>
struct Exists {
  using Type = void;
};

// Config::ScoreMod is in score_mod.cuh, Config::MaskMod in mask_mod.cuh.
template <class Config, class = void>
struct HasScoreMod {
  static constexpr bool kValue = false;
};
template <class Config>
struct HasScoreMod<Config, typename Exists<typename Config::ScoreMod>::Type> {
  static constexpr bool kValue = true;
};
template <class Config, class = void>
struct HasMaskMod {
  static constexpr bool kValue = false;
};
template <class Config>
struct HasMaskMod<Config, typename Exists<typename Config::MaskMod>::Type> {
  static constexpr bool kValue = true;
};

}  // namespace lathe
