// The last look as Prometheus reads it: text exposition format 0.0.4, sizes in bytes, shares from 0 to 1.
#pragma once

#include <string>

#include "watch/judge.h"

namespace plimsoll {

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";
std::string prometheus_text(const Judge& judge);

}  // namespace plimsoll
