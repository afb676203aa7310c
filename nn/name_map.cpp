#include "name_map.h"

#include <optional>
#include <string_view>

#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::nn {
namespace {

using detail::raise;
using State = std::map<std::string, Tensor>;
using Parts = std::vector<std::string>;  ///< what the stars stand for

/// What the stars of the pattern stand for in the name; nothing when it does not fit.
std::optional<Parts> match(std::string_view pattern, std::string_view name) {
  Parts parts;
  while (true) {
    const std::size_t p = pattern.find('.'), n = name.find('.');
    const std::string_view wanted = pattern.substr(0, p), given = name.substr(0, n);
    if (wanted == "*" && !given.empty())
      parts.emplace_back(given);
    else if (wanted != given)
      return std::nullopt;
    if ((p == std::string_view::npos) != (n == std::string_view::npos)) return std::nullopt;
    if (p == std::string_view::npos) return parts;
    pattern.remove_prefix(p + 1);
    name.remove_prefix(n + 1);
  }
}

std::string fill_in(const std::string& pattern, const Parts& parts) {
  std::string out;
  std::size_t next = 0;
  for (char c : pattern) {
    if (c != '*')
      out += c;
    else if (next < parts.size())
      out += parts[next++];
    else
      raise<Error>("translate: a rule with more stars in {} than in the name that it is made from", pattern);
  }
  return out;
}

void add(const char* op, State& state, const std::string& name, const Tensor& t) {
  if (!state.try_emplace(name, t).second) raise<Error>("{}: two tensors become {}", op, name);
}

Tensor transposed(const char* op, const std::string& name, const Tensor& t) {
  if (t.dim() != 2) raise<ShapeError>("{}: {} is to be transposed and is not a matrix: {}", op, name, t.shape());
  return transpose(t, 0, 1);
}

void check_defined(const char* op, const std::string& name, const Tensor& t) {
  if (!t.defined()) raise<Error>("{}: {} is undefined", op, name);
}

}  // namespace

State translate(const State& theirs, const NameMap& map) {
  constexpr const char* op = "translate";
  const NoGrad off;
  State out;
  for (const auto& [name, t] : theirs) {
    check_defined(op, name, t);
    std::string_view bare = name;
    if (bare.starts_with(map.optional_prefix)) bare.remove_prefix(map.optional_prefix.size());
    const NameRule* rule = nullptr;
    Parts parts;
    for (const NameRule& r : map.rules) {
      auto found = match(r.from, bare);
      if (!found) continue;
      rule = &r, parts = std::move(*found);
      break;
    }
    if (!rule) {
      add(op, out, name, t);
      continue;
    }
    if (rule->change == NameChange::ignore) continue;
    if (rule->to.empty() || (rule->to.size() > 1 && rule->change != NameChange::split_rows))
      raise<Error>("{}: the rule for {} gives {} new names", op, rule->from, rule->to.size());
    const auto n = static_cast<Index>(rule->to.size());
    if (rule->change == NameChange::split_rows && (t.dim() == 0 || t.size(0) % n != 0))
      raise<ShapeError>("{}: {} is to be split into {} parts along dim 0: {}", op, name, n, t.shape());
    for (Index i = 0; i < n; ++i) {
      const std::string to = fill_in(rule->to[static_cast<std::size_t>(i)], parts);
      switch (rule->change) {
        case NameChange::transpose: add(op, out, to, transposed(op, name, t)); break;
        case NameChange::split_rows: {
          const Index rows = t.size(0) / n;
          add(op, out, to, slice(t, 0, i * rows, (i + 1) * rows));
          break;
        }
        default: add(op, out, to, t);
      }
    }
  }
  return out;
}

State translate_back(const State& ours, const NameMap& map) {
  constexpr const char* op = "translate_back";
  const NoGrad off;
  State out;
  for (const auto& [name, t] : ours) {
    check_defined(op, name, t);
    const NameRule* rule = nullptr;
    std::size_t which = 0;
    Parts parts;
    for (const NameRule& r : map.rules) {
      for (std::size_t i = 0; i < r.to.size() && !rule; ++i)
        if (auto found = match(r.to[i], name)) rule = &r, which = i, parts = std::move(*found);
      if (rule) break;
    }
    if (!rule) {
      add(op, out, name, t);
      continue;
    }
    const std::string from = fill_in(rule->from, parts);
    if (rule->change == NameChange::transpose) {
      add(op, out, from, transposed(op, name, t));
    } else if (rule->change != NameChange::split_rows) {
      add(op, out, from, t);
    } else if (which == 0) {  // the first part calls for the others
      std::vector<Tensor> rows;
      for (const std::string& part : rule->to) {
        const auto found = ours.find(fill_in(part, parts));
        if (found == ours.end()) raise<Error>("{}: {} is missing, a part of {}", op, fill_in(part, parts), from);
        rows.push_back(found->second);
      }
      add(op, out, from, cat(rows, 0));
    } else if (!ours.count(fill_in(rule->to[0], parts))) {
      raise<Error>("{}: {} is missing, a part of {}", op, fill_in(rule->to[0], parts), from);
    }
  }
  return out;
}

NameMap gpt2_names() {
  NameMap map{{}, "transformer."};
  for (const char* name : {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias", "h.*.ln_1.weight", "h.*.ln_1.bias", "h.*.ln_2.weight",
                           "h.*.ln_2.bias", "h.*.attn.c_attn.bias", "h.*.attn.c_proj.bias", "h.*.mlp.c_fc.bias", "h.*.mlp.c_proj.bias"})
    map.rules.push_back({name, {std::string("transformer.") + name}});
  for (const char* name : {"h.*.attn.c_attn.weight", "h.*.attn.c_proj.weight", "h.*.mlp.c_fc.weight", "h.*.mlp.c_proj.weight"})
    map.rules.push_back({name, {std::string("transformer.") + name}, NameChange::transpose});
  for (const char* name : {"h.*.attn.bias", "h.*.attn.masked_bias"}) map.rules.push_back({name, {}, NameChange::ignore});
  map.rules.push_back({"lm_head.weight", {"lm_head.weight"}});  // absent where it is tied to wte
  return map;
}

NameMap torch_attention_names() {
  NameMap map;
  for (const char* name : {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
    map.rules.push_back({name, {name}});
  return map;
}

NameMap torch_attention_names_of_linears() {
  return {{{"in_proj_weight", {"q.weight", "k.weight", "v.weight"}, NameChange::split_rows},
           {"in_proj_bias", {"q.bias", "k.bias", "v.bias"}, NameChange::split_rows},
           {"q_proj_weight", {"q.weight"}},
           {"k_proj_weight", {"k.weight"}},
           {"v_proj_weight", {"v.weight"}},
           {"out_proj.weight", {"out.weight"}},
           {"out_proj.bias", {"out.bias"}}}};
}

}  // namespace heed::nn
