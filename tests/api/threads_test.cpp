// Jobs in several threads at once: the answers of one thread, to the byte. A build with the preset tsan runs this under the thread
// sanitizer, over everything that starts threads by itself (ranks that differ, plans, layouts, levers) and over callers with threads of
// their own.
#include <gtest/gtest.h>
#include <plimsoll.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using Verb = plimsoll_answer* (*)(const char*);

struct Question {
  Verb verb;
  std::string request;
};

// The document, or the error.
std::string answer(const Question& q) {
  const std::unique_ptr<plimsoll_answer, decltype(&plimsoll_answer_free)> a(q.verb(q.request.c_str()), plimsoll_answer_free);
  return plimsoll_answer_json(a.get(), nullptr) + std::string(plimsoll_answer_message(a.get()));
}

const std::vector<Question>& questions() {
  static const std::vector<Question> all = {
      {plimsoll_estimate, R"({"run": "gpt2", "settings": {"batch": 2, "seq": 64}, "gpu": "rtx-4090"})"},
      {plimsoll_estimate, R"({"run": "t5-small", "settings": {"seq": 32, "zero1": {"world": 3}}, "gpu": "rtx-4090"})"},
      {plimsoll_estimate, R"({"run": "gpt2", "settings": {"seq": 64, "fsdp": {"world": 4}}})"},
      {plimsoll_estimate, R"({"run": "gpt2", "settings": {"seq": 64, "framework": "jax"}})"},
      {plimsoll_estimate, R"({"run": "resnet18", "settings": {"batch": 4}, "gpu": "1GiB", "what_if": true})"},
      {plimsoll_compare, R"({"jobs": ["gpt2"], "settings": {"seq": 32}, "vary": {"batch": [1, 2]}})"},
      {plimsoll_list, R"({"what": "optimizers"})"},
      {plimsoll_estimate, R"({"run": "no-such-model"})"},
  };
  return all;
}

TEST(Threads, CallersGetTheAnswersOfOneThread) {
  std::vector<std::string> alone;
  for (const Question& q : questions()) alone.push_back(answer(q));
  constexpr size_t kCallers = 4;
  std::vector<std::vector<std::string>> together(kCallers, std::vector<std::string>(alone.size()));
  {
    std::vector<std::jthread> callers;
    for (size_t c = 0; c < kCallers; ++c)
      callers.emplace_back([c, &mine = together[c]] {
        for (size_t i = 0; i < mine.size(); ++i) mine[(i + c) % mine.size()] = answer(questions()[(i + c) % mine.size()]);
      });
  }
  for (const std::vector<std::string>& mine : together)
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(mine[i], alone[i]) << questions()[i].request;
}

TEST(Threads, APlanIsTheSameEveryTime) {
  const Question q{plimsoll_plan, R"({"run": "gpt2", "settings": {"batch": 4, "seq": 64}, "gpu": "2GiB"})"};
  const std::string first = answer(q);
  EXPECT_NE(first.find("\"schema\""), std::string::npos) << first;
  EXPECT_EQ(first, answer(q));
}

TEST(Threads, SoIsALayoutOverSeveralDevices) {
  const Question q{plimsoll_plan, R"({"run": "gpt2", "settings": {"batch": 2, "seq": 64}, "gpu": "4GiB", "world": 2})"};
  const std::string first = answer(q);
  EXPECT_NE(first.find("\"schema\""), std::string::npos) << first;
  EXPECT_EQ(first, answer(q));
}

}  // namespace
