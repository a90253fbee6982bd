// torch.nn.parallel.DistributedDataParallel on one rank (nn/parallel/distributed.py and c10d/reducer.cpp of PyTorch 2.14): flat
// buckets that every gradient is copied into, or that gradients are views of. Collectives work in place on the buckets.
#pragma once

#include <vector>

#include "job/parallel.h"
#include "nn/model.h"

namespace plimsoll {

class DataParallel {
 public:
  // Wraps a model: `parameters` are all of it, `buffers` are looked at in every forward. Gradients that arrive while this object
  // lives are its.
  DataParallel(const DdpSettings& settings, Tape& tape, const std::vector<Parameter*>& parameters, const Tensors& buffers);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // `sync`: the backward of this forward reduces; false is what no_sync() does.
  void before_forward(bool sync);
  void after_forward(Output& out);
  void after_backward();

 private:
  using Bucket = std::vector<size_t>;  // positions in trained_

  void make_buckets(const std::vector<Bucket>& buckets);
  void rebuild_buckets();
  void require_finished() const;
  void gradient_arrived(Parameter& p);
  void copy_to_bucket(size_t position);
  void finish_reduction();
  std::vector<int64_t> bucket_limits() const;
  Tensor bucket_view(size_t position) const;

  DdpSettings settings_;
  Tape& tape_;
  std::vector<Parameter*> trained_;
  const Tensors& buffers_;
  Tensors buckets_;                // flat
  std::vector<size_t> bucket_of_;  // by position
  Tensor used_map_;                // which parameters were used, for all ranks to agree on
  std::vector<size_t> order_;      // in which gradients arrived in the backward that buckets are rebuilt after
  std::vector<bool> arrived_;      // in this backward, by position
  bool rebuilt_ = false;
  bool sync_ = true;             // require_backward_grad_sync
  bool sync_buffers_ = true;     // require_forward_param_sync
  bool first_reduction_ = true;  // static_graph: the one that learns the graph
};

}  // namespace plimsoll
