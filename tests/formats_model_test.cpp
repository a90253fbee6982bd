#include <gtest/gtest.h>
#include "job/input.h"
TEST(A,B){}
