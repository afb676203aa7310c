#pragma once

// Everything: what programs include, as <heed/heed.h>. Formatters for fmt and matchers for GoogleTest are in <heed/fmt.h> and <heed/gtest.h>.

#include "autograd/attention.h"
#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "autograd/graph.h"
#include "autograd/kernelcheck.h"
#include "autograd/mask.h"
#include "autograd/ops.h"
#include "nn/attention_report.h"
#include "nn/cache_equivalence.h"
#include "nn/causality.h"
#include "nn/checkpoint.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/generate.h"
#include "nn/gpt.h"
#include "nn/gpt_files.h"
#include "nn/heat_map.h"
#include "nn/kv_cache.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/multi_head_attention.h"
#include "nn/name_map.h"
#include "nn/optim.h"
#include "nn/positions.h"
#include "nn/schedule.h"
#include "nn/self_attention.h"
#include "nn/sequential.h"
#include "nn/svg.h"
#include "nn/text/bpe.h"
#include "nn/text/dataset.h"
#include "nn/text/tokenizer.h"
#include "nn/transformer_encoder_layer.h"
#include "tensor/backend.h"
#include "tensor/build_info.h"
#include "tensor/factory.h"
#include "tensor/io/npy.h"
#include "tensor/io/safetensors.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/tensor.h"

/// @mainpage heed
/// Tensors, reverse-mode differentiation and attention layers on a CPU, in C++20. `#include <heed/heed.h>` brings everything on these pages, but for
/// the formatters in `<heed/fmt.h>` and the matchers in `<heed/gtest.h>`.
///
/// - Data: heed::Tensor, its factories and ops in the namespace heed, heed::load_npy and heed::load_safetensors.
/// - Attention: heed::scaled_dot_product_attention, heed::Mask, heed::nn::SingleHeadSelfAttention, heed::nn::MultiHeadAttention.
/// - Differentiation: heed::Tensor::backward, heed::grad, heed::gradcheck; heed::record for ops of one's own.
/// - Training: what is a layer (heed::nn::Module), heed::nn::GPT and heed::nn::generate, heed::nn::AdamW, heed::nn::save and heed::nn::load.
///
/// Errors are exceptions, heed::Error and what is derived from it. Names and meaning are PyTorch's where it has them.

/// Tensors, how gradients flow through them, and the proof that they are right. Sizes: B batch entries, T positions, C channels, H heads, D head
/// size.
namespace heed {}

/// Layers as plain values, optimizers, and reports on what they have learned.
namespace heed::nn {}
