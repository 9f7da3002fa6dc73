/* stack_options.c, with its calls made by number. */
#include "by_number.h"
#include "stack_options.c"
