"""Training of the learned gate detector (random frames, a U-Net, one ONNX file) and of racing policies. See README.md."""
