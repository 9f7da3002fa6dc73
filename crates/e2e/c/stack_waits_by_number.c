/* stack_waits.c, with its calls made by number. */
#include "by_number.h"
#include "stack_waits.c"
