"""
What does alpha do?
===================

The weight of one more reward falls with what an arm has earned.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import metrics

earned = np.linspace(1.0, 10.0, 100)
figure, axes = plt.subplots()
for alpha in (0.0, 0.5, 1.0, 2.0):
    axes.plot(earned, metrics.marginal_utility(earned, alpha), label=f"alpha = {alpha:g}")
axes.legend()
