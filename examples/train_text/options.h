#pragma once

#include <heed/heed.h>

#include <map>
#include <string>

/// What decides how a model is trained. Kept in its checkpoints, so that a resumed run is the same run.
struct Recipe {
  std::string tokenizer = "bpe";
  heed::Index vocab_size = 1024;  // of bpe
  heed::Index layers = 4, heads = 6, d_model = 192, context = 128;
  double dropout = 0.1;
  heed::Index steps = 2500, batch = 16, accumulate = 1, warmup = 100;
  double lr = 2e-3, weight_decay = 0.1, clip = 1;
  std::uint64_t seed = 1;
};

/// What decides what is shown and written.
struct Options {
  Recipe recipe;
  std::string text, out = "model.safetensors", resume, csv, svg, dot;
  double minutes = 0;          // 0: the recipe's steps
  heed::Index eval_every = 0;  // 0: twenty times in the run
  heed::Index sample_length = 200;
  std::string sample_prompt;
  int threads = 0;  // 0: as many as there are cores
  bool summary = false, quiet = false;
};

/// The recipe as strings with keys that begin with "train.", and back.
std::map<std::string, std::string> recipe_strings(const Recipe&);
Recipe recipe_from(const std::map<std::string, std::string>& strings);
