/* stack_ends.c, with its calls made by number. */
#include "by_number.h"
#include "stack_ends.c"
