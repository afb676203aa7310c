#include "work.h"

namespace heed::bench {
namespace {

double real(Index n) { return static_cast<double>(n); }

/// Training steps of a decoder on random tokens: cross entropy, all gradients, AdamW.
class GptTrain final : public Work {
 public:
  explicit GptTrain(const Row& r) : Work(r), model_(config()), optimizer_((nn::to(model_, row.dtype), nn::named_parameters(model_)), {.lr = 1e-3}) {
    const Index T = row.sizes[3], B = row.sizes[4];
    ids_ = randint(0, vocabulary, {B, T}), targets_ = randint(0, vocabulary, {B * T});
    states = 2;
    const double L = real(row.sizes[0]), H = real(row.sizes[1]), C = real(row.sizes[2]), tokens = real(B * T);
    const double pairs = L * H * real(B) * real(T) * real(T + 1) / 2;
    cost.flops = 6 * tokens * (12 * L * C * C + real(vocabulary) * C) + 14 * pairs * C / H;
    cost.exps = 2 * pairs + 2 * tokens * 4 * C * L + tokens * real(vocabulary);  // attention and gelu, both ways; cross entropy
  }

  void run() override {
    optimizer_.zero_grad();
    const Tensor loss = forward();
    loss.backward();
    optimizer_.step();
    loss_ = loss.detach();
  }
  Tensor forward() override { return cross_entropy(reshape(model_(ids_), {-1, vocabulary}), targets_); }

  NamedTensors inputs() const override {
    NamedTensors all = nn::named_parameters(model_);
    all.insert(all.end(), {{"ids", ids_}, {"targets", targets_}});
    return all;
  }
  NamedTensors results() const override {
    NamedTensors all = {{"loss", loss_}};
    for (const auto& [name, parameter] : nn::named_parameters(model_)) all.emplace_back("d " + name, parameter.grad());
    return all;
  }

 private:
  static constexpr Index vocabulary = 65;

  nn::GPTConfig config() const {
    return {
        .vocab_size = vocabulary, .block_size = row.sizes[3], .n_layer = row.sizes[0], .n_head = row.sizes[1], .n_embd = row.sizes[2], .dropout = 0};
  }

  nn::GPT model_;
  nn::AdamW optimizer_;
  Tensor ids_, targets_, loss_;
};

}  // namespace

std::unique_ptr<Work> make_gpt(const Row& row) { return std::make_unique<GptTrain>(row); }

}  // namespace heed::bench
