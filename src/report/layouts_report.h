// Layouts over many devices as a document and JSON: the fastest with its launch command, then the others that fit.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/layouts.h"
#include "report/document.h"

namespace plimsoll {

doc::Document layouts_document(const LayoutPlan& plan);
nlohmann::ordered_json layouts_json(const LayoutPlan& plan);
nlohmann::ordered_json layout_json(const Layout& layout);

}  // namespace plimsoll
