// Shapes that the answers of several verbs have in common.
#pragma once

#include "api/answer_schema.h"

namespace plimsoll::shape {

Shape range(std::string meaning);  // bytes with their interval
ShapeMembers range_members();
Shape verdict(std::string meaning);
Shape phase(std::string meaning);
Shape category(std::string meaning);
// An object with some of these names as keys, and bytes.
Shape bytes_by(const std::vector<std::string>& names, std::string meaning);
Shape tree(std::string meaning);

Shape job(std::string meaning);       // every setting, readable by --job
Shape settings(std::string meaning);  // some of them
Shape captured();
Shape findings();
Shape overheads(std::string meaning);
Shape correction(std::string meaning);
Shape fits(std::string meaning);

Shape what_if();
Shape left_out();              // levers that make no sense with one pool
Shape host();                  // RAM of the machine
ShapeMembers host_sections();  // that, unified memory, and the rule of thumb
Shape step_time();
Shape planned_run(std::string meaning);
ShapeMembers plan_members();      // of a plan for one device
ShapeMembers estimate_members();  // of an estimate alone, without verdicts and what else was asked

ShapeMembers snapshot_replay_members();  // of `replay` and `explain`
ShapeMembers failed_allocation_members(bool of_trace);
Shape moment(bool of_trace, std::string meaning);
ShapeMembers page_members();  // of a recording's page, without pictures and tables

}  // namespace plimsoll::shape
