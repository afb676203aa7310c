#pragma once

#include "options.h"

/// Steps after which --minutes decides how many there will be.
constexpr heed::Index probe_steps = 20;

/// Trains on the text, or goes on with a checkpoint; the process's exit status: 0, or 128 and the signal's number when one ended the run.
int run(const Options&);
