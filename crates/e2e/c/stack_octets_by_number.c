/* The same by numbers. */
#include "by_number.h"
#include "stack_octets.c"
