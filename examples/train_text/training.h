#pragma once

#include "options.h"

/// Trains on the text, or goes on with a checkpoint; the process's exit status: 0, or 128 and the signal's number when one ended the run.
int run(const Options&);
