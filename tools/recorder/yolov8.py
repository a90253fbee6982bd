"""The network of the family `yolov8`: backbone, neck and decoupled head of YOLOv8 in its five sizes. The loss is dense and of fixed
shapes: every anchor has a target, where a real run assigns targets to some of them (v8DetectionLoss).
Recorded as {"py": "yolov8.py", "args": {"scale": "n", "nc": 80}} with inputs "custom": seq is the side of the images."""
import math

import torch
import torch.nn.functional as F
from torch import nn

SCALES = {'n': (1 / 3, 0.25, 1024), 's': (1 / 3, 0.5, 1024), 'm': (2 / 3, 0.75, 768), 'l': (1.0, 1.0, 512), 'x': (1.0, 1.25, 512)}
REG_MAX = 16


class Conv(nn.Module):
    def __init__(self, channels, out, kernel=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(out)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels, shortcut):
        super().__init__()
        self.cv1, self.cv2, self.add = Conv(channels, channels, 3), Conv(channels, channels, 3), shortcut

    def forward(self, x):
        return x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))


class C2f(nn.Module):
    def __init__(self, channels, out, repeats, shortcut):
        super().__init__()
        c = out // 2
        self.cv1, self.cv2 = Conv(channels, 2 * c), Conv((2 + repeats) * c, out)
        self.m = nn.ModuleList(Bottleneck(c, shortcut) for _ in range(repeats))

    def forward(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(m(y[-1]) for m in self.m)
        return self.cv2(torch.cat(y, 1))


class SPPF(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        c = channels // 2
        self.cv1, self.cv2, self.m = Conv(channels, c), Conv(4 * c, out), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        y = [self.cv1(x)]
        y.extend(self.m(y[-1]) for _ in range(3))
        return self.cv2(torch.cat(y, 1))


class Concat(nn.Module):
    def forward(self, x):
        return torch.cat(x, 1)


class DFL(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(REG_MAX, 1, 1, bias=False).requires_grad_(False)


class Detect(nn.Module):
    def __init__(self, nc, channels):
        super().__init__()
        box, cls = max(16, channels[0] // 4, 4 * REG_MAX), max(channels[0], min(nc, 100))
        self.cv2 = nn.ModuleList(nn.Sequential(Conv(c, box, 3), Conv(box, box, 3), nn.Conv2d(box, 4 * REG_MAX, 1)) for c in channels)
        self.cv3 = nn.ModuleList(nn.Sequential(Conv(c, cls, 3), Conv(cls, cls, 3), nn.Conv2d(cls, nc, 1)) for c in channels)
        self.dfl = DFL()

    def forward(self, x):
        for i in range(len(x)):
            x[i] = torch.cat((self.cv2[i](x[i]), self.cv3[i](x[i])), 1)
        return x


class YOLOv8(nn.Module):
    def __init__(self, scale='n', nc=80):
        super().__init__()
        depth, width, most = SCALES[scale]
        c = lambda channels: math.ceil(min(channels, most) * width / 8) * 8
        n = lambda repeats: max(round(repeats * depth), 1)
        self.nc = nc
        self.inputs = {11: (-1, 6), 14: (-1, 4), 17: (-1, 12), 20: (-1, 9), 22: (15, 18, 21)}
        up = lambda: nn.Upsample(scale_factor=2, mode='nearest')
        self.model = nn.Sequential(*[
            Conv(3, c(64), 3, 2), Conv(c(64), c(128), 3, 2), C2f(c(128), c(128), n(3), True),
            Conv(c(128), c(256), 3, 2), C2f(c(256), c(256), n(6), True),
            Conv(c(256), c(512), 3, 2), C2f(c(512), c(512), n(6), True),
            Conv(c(512), c(1024), 3, 2), C2f(c(1024), c(1024), n(3), True), SPPF(c(1024), c(1024)),
            up(), Concat(), C2f(c(1024) + c(512), c(512), n(3), False),
            up(), Concat(), C2f(c(512) + c(256), c(256), n(3), False),
            Conv(c(256), c(256), 3, 2), Concat(), C2f(c(256) + c(512), c(512), n(3), False),
            Conv(c(512), c(512), 3, 2), Concat(), C2f(c(512) + c(1024), c(1024), n(3), False),
            Detect(nc, (c(256), c(512), c(1024)))])

    def predict(self, x):
        y, saved = [], {4, 6, 9, 12, 15, 18, 21}
        for i, m in enumerate(self.model):
            if i in self.inputs: x = [x if j == -1 else y[j] for j in self.inputs[i]]
            x = m(x)
            y.append(x if i in saved else None)
        return x

    def example_inputs(self, batch, seq, device):
        dtype, anchors = self.model[0].conv.weight.dtype, sum((seq // stride) ** 2 for stride in (8, 16, 32))
        return dict(images=torch.empty(batch, 3, seq, seq, device=device, dtype=dtype),
                    scores=torch.empty(batch, anchors, self.nc, device=device, dtype=dtype),
                    boxes=torch.empty(batch, anchors, 4, device=device, dtype=dtype),
                    bins=torch.zeros(batch * anchors * 4, device=device, dtype=torch.long))

    def forward(self, images, scores, boxes, bins):
        feats = self.predict(images)
        batch = images.shape[0]
        distances, classes = torch.cat([f.view(batch, f.shape[1], -1) for f in feats], 2).split((4 * REG_MAX, self.nc), 1)
        classes = classes.permute(0, 2, 1).contiguous()
        distances = distances.permute(0, 2, 1).contiguous()
        bin_values = torch.arange(REG_MAX, device=images.device).to(distances.dtype).view(REG_MAX, 1)
        decoded = distances.view(batch, -1, 4, REG_MAX).softmax(3).matmul(bin_values).squeeze(3)
        loss = F.binary_cross_entropy_with_logits(classes, scores)
        loss = loss + F.mse_loss(decoded, boxes)
        return loss + F.cross_entropy(distances.view(-1, REG_MAX), bins)


def build(**args):
    return YOLOv8(**args)
