#include "refusals.h"

#define KTS_REASON(name) #name,
const char *const kts_reasons[] = {"FINE", KTS_REASONS(KTS_REASON) 0};
