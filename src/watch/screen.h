// The view on a terminal, with keys. Follows changes of its size; works over ssh, without colour and without Unicode.
#pragma once

#include <functional>

#include "watch/view.h"

namespace plimsoll {

class Screen {
 public:
  // Throws an Error when there is no terminal.
  Screen(ViewOptions options, bool colour);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const Judge& judge);
  // Waits up to `seconds` for keys and obeys them; false: the user wants to end. `stop` is asked in between.
  bool wait(double seconds, const Judge& judge, const std::function<bool()>& stop);

 private:
  bool obey(int key, const Judge& judge);

  ViewOptions options_;
  bool colour_;
};

}  // namespace plimsoll
