#pragma once

#include <stdexcept>

namespace heed {

/// Every exception of heed. The text reads "op: rule broken: the values", and for ops and layers, which know their caller, ends in
/// " (called at FILE:LINE)": the line of the user's program. A call that throws has changed nothing.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Sizes do not fit each other, or a dim does not exist.
struct ShapeError : Error {
  using Error::Error;
};
/// An element type that the op does not take, or two that differ.
struct DTypeError : Error {
  using Error::Error;
};
/// Misuse of differentiation: backward twice, a changed saved value, a gradient of the wrong shape.
struct GradError : Error {
  using Error::Error;
};
/// An element, class or token number out of range.
struct IndexError : Error {
  using Error::Error;
};
/// A file that is missing, damaged, or not writable.
struct IoError : Error {
  using Error::Error;
};

}  // namespace heed
