#include "systems/phrases.h"

#include <cctype>
#include <map>

#include "util/error.h"

namespace plimsoll {

namespace {

// '#' is a number.
const std::map<std::string, std::string, std::less<>> kVietnamese{
    {"Memory of", "Bộ nhớ của"},
    {"Settings", "Thiết lập"},
    {"setting", "thiết lập"},
    {"value", "giá trị"},
    {"comes from", "nguồn"},
    {"default", "mặc định"},
    {"Memory breakdown", "Phân tích bộ nhớ"},
    {"Model parameters", "Tham số mô hình"},
    {"Gradients", "Gradient"},
    {"Optimizer states", "Trạng thái optimizer"},
    {"Moving average (EMA)", "Trung bình trượt (EMA)"},
    {"Buffers", "Buffer"},
    {"Input tensors", "Tensor đầu vào"},
    {"Activations of the forward pass", "Activation của lượt forward"},
    {"Temporaries of the backward pass", "Tensor tạm của lượt backward"},
    {"Temporaries of the optimizer", "Tensor tạm của optimizer"},
    {"Workspaces of kernels", "Vùng làm việc của kernel"},
    {"Gradient buckets of DDP", "Bucket gradient của DDP"},
    {"part", "phần"},
    {"parameters", "tham số"},
    {"bytes", "byte"},
    {"size", "kích thước"},
    {"shape", "shape"},
    {"tensor", "tensor"},
    {"count", "số lượng"},
    {"where", "vị trí"},
    {"source", "mã nguồn"},
    {"total", "tổng"},
    {"trained", "được huấn luyện"},
    {"no effect", "không có tác dụng"},
    {"partial", "chỉ một phần"},
    {"otherwise", "khác với khai báo"},
    {"refused", "bị từ chối"},
    {"conflict", "mâu thuẫn"},
    {"not known", "chưa biết"},
    {"note", "ghi chú"},
    {"At the peak", "Tại đỉnh"},
    {"at most in the step", "nhiều nhất trong một bước"},
    {"at the peak", "tại đỉnh"},
    {"Total", "Tổng bộ nhớ"},
    {"The peak is the sum of what is alive at one moment:", "Đỉnh là tổng của những gì còn sống tại cùng một thời điểm:"},
    {"it is reached in", "đạt được ở"},
    {"forward", "forward"},
    {"backward", "backward"},
    {"optimizer", "optimizer"},
    {"number", "con số"},
    {"expected", "dự kiến"},
    {"interval", "khoảng"},
    {"meaning", "ý nghĩa"},
    {"tensors alive at the peak", "các tensor còn sống tại đỉnh"},
    {"what torch.cuda.max_memory_allocated() will say", "giá trị mà torch.cuda.max_memory_allocated() sẽ báo"},
    {"what torch.cuda.max_memory_reserved() will say", "giá trị mà torch.cuda.max_memory_reserved() sẽ báo"},
    {"what nvidia-smi will show for the process", "giá trị mà nvidia-smi sẽ hiển thị cho tiến trình"},
    {"what the device must hold", "phần mà thiết bị phải chứa"},
    {"share", "tỉ lệ"},
    {"step", "bước"},
    {"peak", "đỉnh"},
    {"Bottlenecks, ranked", "Điểm nghẽn, xếp hạng"},
    {"Recommendations", "Khuyến nghị"},
    {"Each was simulated for this very run; savings are of device memory.",
     "Mỗi mục đều đã được mô phỏng cho chính lượt chạy này; mức tiết kiệm tính trên bộ nhớ thiết bị."},
    {"saves", "tiết kiệm"},
    {"then", "sau đó"},
    {"cost", "cái giá"},
    {"Does nothing here:", "Không có tác dụng ở đây:"},
    {"Takes more memory:", "Tốn thêm bộ nhớ:"},
    {"Not possible:", "Không thể:"},
    {"Comparison", "So sánh"},
    {"configuration", "cấu hình"},
    {"change", "thay đổi"},
    {"device memory", "bộ nhớ thiết bị"},
    {"Fits in", "Vừa với"},
    {"yes", "✅ Có"},
    {"maybe", "⚠️ Có thể"},
    {"no", "❌ Không"},
    {"unknown", "không rõ"},
    {"as it is", "hiện tại"},
    {"batch #", "batch #"},
    {"batch #, checkpointing", "batch #, checkpointing"},
    {"Declared and effective", "Khai báo và thực tế"},
    {"Every setting does what it says.", "Mọi thiết lập đều làm đúng như khai báo."},
    {"How sure", "Độ tin cậy"},
    {"The architecture is not known: what follows from its weights is exact, activations are those of a stand-in, and their interval is "
     "wide.",
     "Kiến trúc không được biết: những gì suy ra từ trọng số là chính xác, activation là của một mô hình thay thế, và khoảng giá trị của "
     "chúng rộng."},
    {"The step was executed op by op under PyTorch's memory rules, which are checked against recorded runs to the byte; intervals hold "
     "what no simulation knows (contexts, workspaces, fragmentation).",
     "Bước huấn luyện được thực thi từng phép toán theo quy tắc bộ nhớ của PyTorch, đã đối chiếu đến từng byte với các lượt chạy được ghi "
     "lại; "
     "khoảng giá trị bao gồm những gì mô phỏng không biết (context, workspace, phân mảnh)."},
    {"The step was compiled as XLA does: arguments, outputs and aliases are exact, temporaries are modelled and have an interval.",
     "Bước huấn luyện được biên dịch theo cách của XLA: tham số, đầu ra và alias là chính xác; bộ nhớ tạm được mô hình hóa và có khoảng "
     "giá trị."},
    {"parameter", "tham số"},
    {"buffer", "buffer"},
    {"input", "đầu vào"},
    {"gradient", "gradient"},
    {"optimizer state", "trạng thái optimizer"},
    {"ema", "EMA"},
    {"activation", "activation"},
    {"backward temporary", "tensor tạm của backward"},
    {"optimizer temporary", "tensor tạm của optimizer"},
    {"workspace", "workspace"},
    {"gradient bucket", "bucket gradient"},
    {"(view, nothing is copied)", "(view, không sao chép)"},
    // What-if: names and costs of levers.
    {"checkpoint every block", "checkpoint mọi block"},
    {"checkpoint every #nd block", "checkpoint mỗi block thứ #"},
    {"checkpoint all but matrix products", "checkpoint tất cả trừ phép nhân ma trận"},
    {"activations on the host", "đưa activation về RAM máy chủ"},
    {"torch.compile", "torch.compile"},
    {"fused attention", "attention hợp nhất (fused)"},
    {"Liger's fused cross-entropy", "cross-entropy hợp nhất của Liger"},
    {"cross-entropy in chunks", "cross-entropy theo từng khúc"},
    {"drop the logits before backward", "bỏ logits trước backward"},
    {"bf# autocast", "autocast bf#"},
    {"everything in bf#", "tất cả ở bf#"},
    {"half the batch, twice the accumulation", "nửa batch, gấp đôi accumulation"},
    {"batch #, the rest by accumulation", "batch #, phần còn lại bằng accumulation"},
    {"half the sequence", "nửa độ dài chuỗi"},
    {"smaller images", "ảnh nhỏ hơn"},
    {"fused optimizer", "optimizer hợp nhất (fused)"},
    {"Left out", "Không xét"},
    {"one pool: the host is the device", "bộ nhớ chung: máy chủ và thiết bị là một"},
    {"optimizer parameter by parameter", "optimizer từng tham số một"},
    {"#-bit AdamW", "AdamW #-bit"},
    {"Adafactor", "Adafactor"},
    {"Lion", "Lion"},
    {"update in backward", "cập nhật ngay trong backward"},
    {"optimizer on the host", "optimizer trên RAM máy chủ"},
    {"optimizer and gradients on the host", "optimizer và gradient trên RAM máy chủ"},
    {"SGD without momentum", "SGD không momentum"},
    {"LoRA of rank #", "LoRA hạng #"},
    {"QLoRA: LoRA on an nf# base", "QLoRA: LoRA trên nền nf#"},
    {"weights of # blocks on the host", "trọng số của # block trên RAM máy chủ"},
    {"moving average on the host", "trung bình trượt trên RAM máy chủ"},
    {"no moving average", "tắt trung bình trượt (EMA)"},
    {"expandable segments", "expandable segments"},
    {"large blocks not split", "không chia nhỏ block lớn"},
    {"the frozen base in nf#", "phần nền đóng băng ở nf#"},
    {"weights, gradients and states over the ranks (FSDP#)", "chia trọng số, gradient và trạng thái cho các rank (FSDP#)"},
    {"gradients as views of DDP's buckets", "gradient là view của bucket DDP"},
    {"optimizer states over the ranks (ZeRO-#)", "chia trạng thái optimizer cho các rank (ZeRO-#)"},
    {"states over the ranks (DeepSpeed's ZeRO-#)", "chia trạng thái cho các rank (ZeRO-# của DeepSpeed)"},
    {"states and gradients over the ranks (DeepSpeed's ZeRO-#)", "chia trạng thái và gradient cho các rank (ZeRO-# của DeepSpeed)"},
    {"the updated weights go to all after each step; needs DeepSpeed", "trọng số mới được gửi tới mọi rank sau mỗi bước; cần DeepSpeed"},
    {"weights, gradients and states over the ranks (DeepSpeed's ZeRO-#)",
     "chia trọng số, gradient và trạng thái cho các rank (ZeRO-# của DeepSpeed)"},
    {"every layer's weights are gathered in forward and backward; needs DeepSpeed",
     "trọng số của mỗi lớp được gom lại ở cả lượt xuôi lẫn lượt ngược; cần DeepSpeed"},
    {"weights over the ranks, too (ZeRO-#)", "chia cả trọng số cho các rank (ZeRO-#)"},
    {"every layer's weights are gathered in forward and backward", "trọng số của mỗi lớp được gom lại ở cả lượt xuôi lẫn lượt ngược"},
    {"ZeRO's parts of the weights on the host", "phần trọng số của ZeRO nằm ở RAM"},
    {"weights come over PCIe when they are gathered", "trọng số đi qua PCIe mỗi khi được gom lại"},
    {"about # % more time: one more forward of three", "thêm khoảng # % thời gian: thêm một forward trên ba"},
    {"about # % more time: half a forward more", "thêm khoảng # % thời gian: thêm nửa forward"},
    {"up to # % more time: at most one more forward", "thêm tối đa # % thời gian: nhiều nhất một forward nữa"},
    {"a few percent more time: only cheap ops run again", "thêm vài phần trăm thời gian: chỉ chạy lại phép toán rẻ"},
    {"copies over PCIe", "sao chép qua PCIe"},
    {"# GiB over PCIe and back in each micro-step, # s at # GB/s, and as much pinned RAM",
     "# GiB qua PCIe rồi trở lại trong mỗi micro-step, # s ở # GB/s, và chừng ấy RAM ghim (pinned)"},
    {"# MiB over PCIe and back in each micro-step, # s at # GB/s, and as much pinned RAM",
     "# MiB qua PCIe rồi trở lại trong mỗi micro-step, # s ở # GB/s, và chừng ấy RAM ghim (pinned)"},
    {"none: it is faster once compiled; an approximation", "không: nhanh hơn sau khi biên dịch; giá trị gần đúng"},
    {"none: it is faster", "không: còn nhanh hơn"},
    {"none: it is faster; results differ by rounding", "không: còn nhanh hơn; kết quả khác nhau do làm tròn"},
    {"little: logits chunk by chunk; needs Liger-Kernel", "ít: logits theo từng khúc; cần Liger-Kernel"},
    {"little: logits chunk by chunk, as in torchtune", "ít: logits theo từng khúc, như torchtune"},
    {"none: `loss = out.loss; del out`", "không: `loss = out.loss; del out`"},
    {"none; small updates are rounded away without fp# weights", "không; cập nhật nhỏ bị làm tròn mất khi không có trọng số fp#"},
    {"little while a half batch still fills the device", "ít, khi nửa batch vẫn đủ lấp đầy thiết bị"},
    {"much where one sample does not fill the device", "nhiều, khi một mẫu không lấp đầy thiết bị"},
    {"none, but samples are cut", "không, nhưng mẫu bị cắt ngắn"},
    {"none, but less is seen", "không, nhưng thấy ít chi tiết hơn"},
    {"a slower update: a kernel for each parameter", "cập nhật chậm hơn: một kernel cho mỗi tham số"},
    {"none to speak of; needs bitsandbytes", "không đáng kể; cần bitsandbytes"},
    {"none to speak of; needs torchao", "không đáng kể; cần torchao"},
    {"none to speak of; an environment variable", "không đáng kể; một biến môi trường"},
    {"weights are gathered in forward and backward", "trọng số được gom lại trong forward và backward"},
    {"weights to unpack in every product; needs bitsandbytes", "giải nén trọng số trong mỗi phép nhân; cần bitsandbytes"},
    {"a slower update, and another learning rate", "cập nhật chậm hơn, và learning rate khác"},
    {"none; another learning rate", "không; learning rate khác"},
    {"little; gradients never exist together", "ít; các gradient không bao giờ cùng tồn tại"},
    {"an update on the CPU and weights and gradients over PCIe; needs torchao",
     "cập nhật trên CPU, trọng số và gradient qua PCIe; cần torchao"},
    {"none per step; transformers often do not train with it", "không; transformer thường không huấn luyện được với nó"},
    {"none; only adapters are trained", "không; chỉ huấn luyện adapter"},
    {"a forward more and weights to unpack; PEFT turns checkpointing on with it",
     "thêm một forward và phải giải nén trọng số; PEFT bật checkpointing cùng với nó"},
    {"weights over PCIe in forward and backward", "trọng số qua PCIe trong forward và backward"},
    {"weights over PCIe after each update", "trọng số qua PCIe sau mỗi lần cập nhật"},
    {"none; an environment variable", "không; một biến môi trường"},
    {"# keys a query instead of #", "# key mỗi query thay vì #"},
    {"# layers instead of #", "# lớp thay vì #"},
    {"a feed-forward of # instead of #", "feed-forward # thay vì #"},
    {"# predicted frames instead of #", "# khung hình dự đoán thay vì #"},
    {"# frames instead of #", "# khung hình thay vì #"},
    {"# x # pixels", "# x # điểm ảnh"},
    {"# images in a set instead of #", "# ảnh mỗi tập thay vì #"},
    {"less time; attention sees fewer keys", "ít thời gian hơn; attention thấy ít key hơn"},
    {"less time; a smaller model", "ít thời gian hơn; mô hình nhỏ hơn"},
    {"less time; shorter videos", "ít thời gian hơn; video ngắn hơn"},
    {"less time; less is seen", "ít thời gian hơn; thấy ít chi tiết hơn"},
    {"less time; shorter futures", "ít thời gian hơn; tương lai ngắn hơn"},
    {"less time; smaller sets", "ít thời gian hơn; tập nhỏ hơn"},
    {"a broadcast of the weights after each update", "broadcast trọng số sau mỗi lần cập nhật"},
};

// The text with '#' for each number, and the numbers.
std::string with_holes(std::string_view text, std::vector<std::string>& numbers) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      out += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() &&
           (std::isdigit(static_cast<unsigned char>(text[end])) ||
            ((text[end] == '.' || text[end] == ',') && end + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[end + 1])))))
      ++end;
    numbers.emplace_back(text.substr(i, end - i));
    out += '#';
    i = end;
  }
  return out;
}

}  // namespace

Language parse_language(const std::string& text) {
  if (text == "en") return Language::english;
  if (text == "vi") return Language::vietnamese;
  throw Error("[report] language '" + text + "' is not known", "known: en, vi", ExitCode::usage);
}

bool has_translation(std::string_view english) {
  std::vector<std::string> numbers;
  return kVietnamese.contains(with_holes(english, numbers));
}

std::string Phrases::operator()(std::string_view english) const {
  if (language_ == Language::english) return std::string(english);
  std::vector<std::string> numbers;
  const auto it = kVietnamese.find(with_holes(english, numbers));
  if (it == kVietnamese.end()) return std::string(english);
  std::string out;
  size_t next = 0;
  for (char c : it->second) {
    if (c == '#' && next < numbers.size())
      out += numbers[next++];
    else
      out += c;
  }
  return out;
}

}  // namespace plimsoll
