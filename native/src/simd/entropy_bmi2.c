/*
 * entropy_bmi2.c: the entropy decoder for machines with BMI2, whose shifts by a variable take one instruction instead of three.
 */
#define STK_NAME(name) name##_bmi2
#include "entropy_body.h"
