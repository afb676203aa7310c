#pragma once

#include <vector>

#include "../tensor/tensor.h"

namespace heed {

/// What a call of `grad` leaves behind, and what it puts up with.
struct GradOptions {
  bool retain_graph = false;  ///< keep the graph for another pass
  bool create_graph = false;  ///< record the pass itself, for derivatives of derivatives; implies retain_graph
  bool allow_unused = false;  ///< an input that no output depends on gets an undefined gradient instead of a GradError
};

/// d(sum of outputs * grad_outputs)/d(input) for each input, which may be intermediate results. Nothing is added to any `.grad`, and the pass goes no
/// further than the inputs. An absent entry of `grad_outputs` stands for 1 and wants an output of one element.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, const std::vector<Tensor>& grad_outputs = {},
                         GradOptions = {});

/// While alive, every op and every backward of this thread is searched for NaN: GradError names the first op that made one out of inputs without, and
/// where it was called. Slow.
class AnomalyMode {
 public:
  [[nodiscard]] AnomalyMode();
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  void* observer_;
};

}  // namespace heed
