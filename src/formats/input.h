// Whatever the user points at becomes a Job: the name of a model, a file, a directory that holds several, a training command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/document.h"
#include "job/job.h"

namespace plimsoll {

// `as`: the name of the reader that the user insists on; empty: the content tells. "-" is standard input. True: a model alone was named, by
// its name, its configuration or its weights, and nothing was said about how it is trained.
bool read_input(Job& job, const std::vector<std::string>& words, const std::string& as = "");
bool read_input_document(Job& job, const Document& document, const std::string& as = "");
bool read_input_file(Job& job, const std::string& path, const std::string& as = "");  // throws when no reader takes it
bool read_input_directory(Job& job, const std::string& path);                         // all files whose format is known, by rank

// What settings can be written back into: the file, or the command; none for the name of a model. Throws for a directory.
std::optional<Document> input_document(const std::vector<std::string>& words, const std::string& job_file);

}  // namespace plimsoll
