// A captured program by hand: a weight and its gradient, a loop over chunks of 256 rows, two steps. Its sizes are formulas of batch and
// seq.
#pragma once

#include <string>

namespace plimsoll {

inline std::string captured_head(const std::string& more = "") {
  return R"({"plimsoll_trace":2,"torch":"2.13.0","script":"train.py","device":"rtx-4090","steps":2,"command":["python","train.py","--lr","1e-3"]}
{"symbol":"batch","at":6,"min":2,"max":4294967296}
{"symbol":"seq","at":160,"min":2,"max":4294967296}
)" + more;
}

inline std::string captured_body(const std::string& activation = R"({"formula":3})") {
  const std::string step = R"({"step":true}
{"phase":"forward"}
{"work":"aten::mm","flops":{"formula":8},"read":{"formula":3},"written":{"formula":3},"dtype":"float32"}
)";
  const auto pass = [&](int id) {
    const std::string a = std::to_string(id), b = std::to_string(id + 1), g = std::to_string(id + 2);
    return R"({"alloc":)" + a + R"(,"bytes":{"formula":4},"category":"input","phase":"forward","op":"aten::copy_"}
{"alloc":)" +
           b + R"(,"bytes":)" + activation + R"(,"category":"activation","phase":"forward","op":"aten::mm","scope":1}
{"phase":"backward"}
{"alloc":)" +
           g + R"(,"bytes":1048576,"category":"backward temporary","phase":"backward","op":"aten::mm","scope":1}
{"relabel":)" +
           g + R"(,"category":"gradient"}
{"free":)" +
           b + R"(}
{"phase":"optimizer"}
{"free":)" +
           g + R"(}
{"free":)" +
           a + "}\n";
  };
  return R"({"formula":3,"bytes":"3072*batch*seq"}
{"formula":4,"bytes":"8*batch*seq"}
{"formula":8,"bytes":"2*pow(1024,2)*batch"}
{"guard":"batch*seq < 1024 and batch*seq >= 768 or batch*seq >= 4096","where":"train.py:11"}
{"pin":"mod(seq, 32) = 0","where":"train.py:14"}
{"read":"train.py:47","dtype":"float32","value":1.0,"known":true}
{"skipped":"torch.save","where":"train.py:50"}
{"note":"torch.compile was ignored","where":"train.py:9"}
{"checked":{"batch":40,"seq":128}}
{"scope":1,"parent":0,"name":"layer"}
{"alloc":0,"bytes":1048576,"category":"parameter","phase":"setup","op":"aten::empty","scope":1}
)" + step +
         pass(1) + step + pass(4);
}

inline std::string captured_text(const std::string& more = "") { return captured_head(more) + captured_body(); }

// Its activation has one row for each of n1 elements that a mask leaves.
inline std::string captured_count_text() {
  return captured_head(R"({"count":"n1","at":480,"most":"batch*seq","known":false,"where":"train.py:19"}
{"formula":9,"bytes":"3072*n1"}
)") + captured_body(R"({"formula":9})");
}

}  // namespace plimsoll
