// What GaLore and APOLLO share: which weights have projected gradients, and the matrix that projects one of them.
#pragma once

#include <set>

#include "optim/arguments.h"
#include "optim/optimizer.h"

namespace plimsoll {

// `target_modules` as transformers' optim_target_modules is read: "all-linear", a regular expression for the whole name of a module,
// or a list of parts of names. Linear layers alone are targets.
class LowRankTargets {
 public:
  explicit LowRankTargets(const Arguments& args);
  void choose(const std::vector<LinearWeight>& layers);
  // Throws when nobody said which layers there are.
  void check_chosen() const;
  // Positions of parameters with a gradient: those that are not projected come first, as in the Trainer's groups.
  std::vector<size_t> in_order(const std::vector<Parameter*>& all) const;
  bool holds(const Parameter* p) const { return targets_.count(p) > 0; }

 private:
  std::string pattern_;             // of a whole name, or
  std::vector<std::string> parts_;  // of one
  std::set<const Parameter*> targets_;
};

// Which side of a matrix its projection shortens.
enum class ProjectionKind { std, reverse_std, right, left };

struct ProjectionSettings {
  explicit ProjectionSettings(const Arguments& args);
  bool is_right(const Tensor& matrix) const;  // (m, n) becomes (m, rank), not (rank, n)
  int64_t rank;
  ProjectionKind kind = ProjectionKind::std;
};

// The first `rank` singular vectors of a matrix. Those of an fp32 matrix are a view of all of them, which stay alive.
Tensor singular_vectors(const Tensor& matrix, const ProjectionSettings& settings);
// Random numbers in their place.
Tensor random_projection(const Tensor& matrix, const ProjectionSettings& settings);
// matmul(matrix, projection.t()), or from the left.
Tensor projected(const Tensor& matrix, const Tensor& projection, const ProjectionSettings& settings);
// GaLore's project_back: the full matrix, and it times the scale.
Tensor projected_back(const Tensor& low, const Tensor& projection, bool right);

}  // namespace plimsoll
