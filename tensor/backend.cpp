#include "backend.h"

#include <utility>

#include "kernels/onednn.h"
#include "raise.h"

namespace heed {
namespace {

thread_local constinit Backend current = Backend::automatic;

}  // namespace

BackendGuard::BackendGuard(Backend backend) : before_(current) {
  if (backend == Backend::onednn && !kernels::onednn::available())
    detail::raise<Error>("BackendGuard: Backend::onednn: {}",
                         kernels::onednn::version().empty() ? "this build has no oneDNN" : "a forked child cannot use oneDNN");
  current = backend;
}
BackendGuard::~BackendGuard() { current = before_; }

Backend detail::backend() { return current; }

}  // namespace heed
