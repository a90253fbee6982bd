"""The network of the family `unet-segmentation`: the U-Net of semantic segmentation with two convolutions a level, up-sampled by
transposed convolutions or bilinearly; cross entropy of every pixel (one class: binary, with logits).
Recorded as {"py": "unet_segmentation.py", "args": {...}} with inputs "custom": seq is the side of the images."""
import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Module):
    def __init__(self, channels, out, mid=None):
        super().__init__()
        mid = mid or out
        self.double_conv = nn.Sequential(nn.Conv2d(channels, mid, 3, padding=1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
                                         nn.Conv2d(mid, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(channels, out))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, channels, out, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
            self.conv = DoubleConv(channels, out, channels // 2)
        else:
            self.up = nn.ConvTranspose2d(channels, channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(channels, out)

    def forward(self, below, skip):
        below = self.up(below)
        rows, columns = skip.size(2) - below.size(2), skip.size(3) - below.size(3)
        below = F.pad(below, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        x = torch.cat([skip, below], dim=1)
        return self.conv(x)


class OutConv(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel_size=1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2, bilinear=False, base_channels=64):
        super().__init__()
        self.n_channels, self.n_classes = n_channels, n_classes
        c, factor = base_channels, 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, c)
        self.down1, self.down2, self.down3 = Down(c, 2 * c), Down(2 * c, 4 * c), Down(4 * c, 8 * c)
        self.down4 = Down(8 * c, 16 * c // factor)
        self.up1, self.up2 = Up(16 * c, 8 * c // factor, bilinear), Up(8 * c, 4 * c // factor, bilinear)
        self.up3, self.up4 = Up(4 * c, 2 * c // factor, bilinear), Up(2 * c, c, bilinear)
        self.outc = OutConv(c, n_classes)

    def example_inputs(self, batch, seq, device):
        dtype = self.outc.conv.weight.dtype
        masks = (batch, seq, seq)
        return dict(images=torch.empty(batch, self.n_channels, seq, seq, device=device, dtype=dtype),
                    masks=torch.empty(masks, device=device, dtype=dtype) if self.n_classes == 1
                    else torch.zeros(masks, device=device, dtype=torch.long))

    def forward(self, images, masks):
        x1 = self.inc(images)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x5 = self.down4(x4)
        x = self.up1(x5, x4)
        x = self.up2(x, x3)
        x = self.up3(x, x2)
        x = self.up4(x, x1)
        logits = self.outc(x)
        if self.n_classes == 1:
            return F.binary_cross_entropy_with_logits(logits.squeeze(1), masks)
        return F.cross_entropy(logits, masks)


def build(**args):
    return UNet(**args)
