"""A folder of class folders, torchvision's transforms, a small convolutional network."""

import torch
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder
from training_log import TrainingLog

from stoker.torch import DataLoader

log = TrainingLog()
augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(32),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)
dataset = ImageFolder(log.data, augment)
loader = DataLoader(dataset, batch_size=5, shuffle=True, num_workers=log.workers)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, len(dataset.classes)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

log.resume(loader)
for epoch in log.epochs():
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(loader, (images, labels), loss)
log.end()
