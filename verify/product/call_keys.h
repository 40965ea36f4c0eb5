// The keys of a call: what its peers must agree on, in words that do not depend on a Run's ids.
#pragma once

#include <string>

#include "trace/run.h"
#include "verify/product/sequence_table.h"

namespace lockstep {

// Two calls on one channel may meet, for all that was recorded, exactly if their shared keys are
// equal. The rules are those of verify/agreement.h and, for messages, of message_differs(); what
// was not recorded is written as "?".
std::string shared_key(const Tables& tables, const Call& call);

// How an all-to-all is cut, else empty lists.
ExchangeSplits exchange_splits(const Tables& tables, const Call& call);

}  // namespace lockstep
