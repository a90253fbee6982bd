// How many processes a launcher starts, where its command does not say it in numbers.
#include <gtest/gtest.h>

#include "formats/command_line.h"
#include "formats/format.h"
#include "job/distribution.h"
#include "seed_formats.h"
#include "support.h"
#include "weights_files.h"

namespace plimsoll::launch_test {
namespace {

constexpr const char* kTrainer = " train.py --model_name_or_path gpt2 --per_device_train_batch_size 1";
constexpr const char* kStdiff = " train_stdiff.py --train_config nowhere.yaml";

std::string error_of_command(const std::string& command) {
  return error_of([&] { read_command(command); });
}

Job read_script(const std::string& text) {
  Job job;
  read_input_document(job, parse_document("#!/bin/bash\n" + text, "run.sh"));
  return job;
}

TEST(LaunchCounts, ImpossibleOnesAreErrorsThatNameThem) {
  for (const char* rest : {kTrainer, kStdiff}) {
    for (const char* launcher :
         {"torchrun --nproc_per_node=0", "torchrun --nproc_per_node=-2", "torchrun --nproc-per-node 1.5", "torchrun --nnodes=0",
          "torchrun --nnodes 4:1", "accelerate launch --num_processes 0", "accelerate launch --num_machines none", "deepspeed --num_gpus 0",
          "mpirun -np 0", "srun --ntasks-per-node=many", "torchrun --nproc_per_node 2 --nproc_per_node 0"}) {
      const std::string text = error_of_command(launcher + std::string(rest));
      EXPECT_NE(text.find("expected a whole number above 0"), std::string::npos) << launcher << rest << ": " << text;
      EXPECT_NE(text.find("[command line] --"), std::string::npos) << launcher << rest << ": " << text;
    }
  }
  const std::string text = error_of_command("torchrun --nproc_per_node=0 train.py --per_device_train_batch_size 1");
  EXPECT_NE(text.find("--nproc_per_node is 0"), std::string::npos) << text;
  EXPECT_NE(text.find("| e.g. --nproc_per_node 1"), std::string::npos) << text;
}

TEST(LaunchCounts, OfAllNodesAreSharedByThem) {
  EXPECT_NE(error_of_command(std::string("mpirun -np 3 --nodes 2") + kTrainer).find("cannot be shared by 2 nodes"), std::string::npos);
  EXPECT_EQ(read_command(std::string("mpirun -np 6 --nodes 2") + kTrainer).parallel.world(), 6);
  EXPECT_EQ(read_command(std::string("accelerate launch --num_processes 6 --num_machines 2") + kStdiff).parallel.world(), 6);
}

TEST(LaunchCounts, WordsAndVariablesAreTakenAsSomething) {
  for (const char* rest : {kTrainer, kStdiff}) {
    for (const char* launcher :
         {"torchrun --nproc_per_node gpu", "torchrun --nproc_per_node $NGPU", "accelerate launch --num_processes ${N}"}) {
      const Job here = read_command("CUDA_VISIBLE_DEVICES=0,1,2 " + (launcher + std::string(rest)));
      EXPECT_EQ(world_size(here), 3) << launcher << rest;
      EXPECT_TRUE(finds(here, Effect::note, "taken as 3") || finds(here, Effect::unknown, "taken as 3")) << findings_text(here);
      const Job anywhere = read_command(launcher + std::string(rest));
      EXPECT_EQ(world_size(anywhere), 1) << launcher << rest;
      EXPECT_TRUE(finds(anywhere, Effect::unknown, "taken as 1")) << findings_text(anywhere);
    }
  }
  const Job elastic = read_command(std::string("torchrun --nnodes 2:4 --nproc_per_node 8") + kTrainer);
  EXPECT_EQ(world_size(elastic), 16);
  EXPECT_TRUE(finds(elastic, Effect::unknown, "--nnodes = 2:4; taken as 2; the least that it allows")) << findings_text(elastic);
  EXPECT_EQ(read_command(std::string("torchrun --nproc_per_node 2 --nproc_per_node 4") + kTrainer).parallel.world(), 4);  // argparse
  EXPECT_EQ(read_command(std::string("CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus -1") + kTrainer).parallel.world(), 2);
}

TEST(LaunchCounts, LaunchersThatTakeEveryGpuSaySo) {
  for (const char* rest : {kTrainer, kStdiff})
    for (const char* launcher : {"accelerate launch", "deepspeed"}) {
      EXPECT_TRUE(finds(read_command(launcher + std::string(rest)), Effect::unknown, "on every GPU of the machine: taken as one"))
          << launcher << rest;
      EXPECT_EQ(read_command("CUDA_VISIBLE_DEVICES=4,5 " + (launcher + std::string(rest))).parallel.world(), 2) << launcher << rest;
    }
}

TEST(LaunchCounts, OfLinesThatAreNotUsedDoNotMatter) {
  const Job job = read_script("torchrun --nproc_per_node=0 prepare.py --bf16\ntorchrun --nproc_per_node=2" + std::string(kTrainer) + "\n");
  EXPECT_EQ(world_size(job), 2);
  EXPECT_THROW(read_script("torchrun --nproc_per_node=0" + std::string(kTrainer) + "\n"), Error);
}

TEST(LaunchCounts, OfSlurm) {
  const std::string run = "srun python" + std::string(kTrainer) + "\n";
  EXPECT_EQ(read_script("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" + run).parallel.world(), 8);
  const Job some = read_script("#SBATCH --nodes=2-4\n#SBATCH --ntasks-per-node=4\n" + run);
  EXPECT_EQ(world_size(some), 8);
  EXPECT_TRUE(finds(some, Effect::unknown, "SLURM_NNODES = 2-4; taken as 2")) << findings_text(some);
  EXPECT_THROW(read_script("#SBATCH --nodes=0\n" + run), Error);
  EXPECT_THROW(read_script("#SBATCH --ntasks-per-node=0\n" + run), Error);
  EXPECT_EQ(read_script("#SBATCH --nodes=2\n#SBATCH --ntasks=8\n" + run).parallel.world(), 8);
  EXPECT_EQ(read_script("#SBATCH -N 2\nsrun -n 6 python" + std::string(kTrainer) + "\n").host.ranks_per_host, 3);
  EXPECT_EQ(read_command("srun -N 2 --ntasks 4 python" + std::string(kTrainer)).parallel.world(), 4);
  EXPECT_EQ(read_command("srun -n 4 --ntasks-per-node 2 python" + std::string(kTrainer)).host.ranks_per_host, 2);
  EXPECT_THROW(read_command("srun -n 0 python" + std::string(kTrainer)), Error);
}

TEST(Launch, HostsOfSeveralProcessesAreKnownToEveryFormat) {
  EXPECT_EQ(read_command(std::string("accelerate launch --num_processes 4 --num_machines 2") + kStdiff).host.ranks_per_host, 2);
  EXPECT_EQ(read_command(std::string("torchrun --nproc_per_node 4") + kTrainer).host.ranks_per_host, 4);
}

TEST(Launch, TwoNamesOfTheAllocatorsSettingsAreAConflictInEveryFormat) {
  for (const char* rest : {kTrainer, kStdiff}) {
    const Job job =
        read_command("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTORCH_ALLOC_CONF=max_split_size_mb:64 python" + std::string(rest));
    EXPECT_EQ(job.alloc_conf, "expandable_segments:True") << rest;
    EXPECT_TRUE(finds(job, Effect::conflict, "two names of one setting")) << rest << findings_text(job);
  }
}

TEST(Launch, AFileThatIsNoTextIsNotPassedOver) {
  EXPECT_TRUE(finds(read_command("python train_stdiff.py --train_config"), Effect::missing, "it is not here"));
}

}  // namespace
}  // namespace plimsoll::launch_test
