// LoKr as PEFT computes it: the change of a weight is a Kronecker product of two small matrices (one of them perhaps a product
// itself), made in full size in every forward.
#pragma once

#include "nn/adapter.h"

namespace plimsoll {

class Lokr : public Adapter {
 public:
  Lokr(DenseLayer& layer, const AdapterSettings& settings);
  Tensor operator()(const DenseLayer& layer, const Tensor& x) const override;

 private:
  // A factor: one matrix, or two whose product it is.
  struct Factor {
    Factor(DenseLayer& layer, const std::string& name, int64_t rows, int64_t columns, std::optional<int64_t> rank, DType dtype);
    Tensor operator()() const;
    AdapterParameter first;
    std::unique_ptr<AdapterParameter> second;
  };
  Tensor delta_weight(const DenseLayer& layer) const;
  Tensor delta(const DenseLayer& layer, const Tensor& x) const;

  std::optional<Factor> w1_, w2_;
};

// peft 0.20, tuners/lokr/layer.py, factorization(): two numbers whose product is `dimension`, the first near `factor` (-1: near the
// square root).
std::pair<int64_t, int64_t> factorization(int64_t dimension, int64_t factor);

}  // namespace plimsoll
