"""The values that modules exchange: immutable, and validated when they are made."""

from alphafair.values.arrays import Indices as Indices
from alphafair.values.arrays import Matrix as Matrix
from alphafair.values.arrays import Vector as Vector
from alphafair.values.arrays import frozen as frozen
from alphafair.values.available import AvailableArms as AvailableArms
from alphafair.values.decision import ChosenDecision as ChosenDecision
from alphafair.values.decision import ChosenSlate as ChosenSlate
from alphafair.values.decision import Decision as Decision
from alphafair.values.decision import DescribedDecision as DescribedDecision
from alphafair.values.decision import DescribedSlate as DescribedSlate
from alphafair.values.decision import SlateDecision as SlateDecision
from alphafair.values.features import FeatureSchema as FeatureSchema
from alphafair.values.interval import Interval as Interval
from alphafair.values.log import Log as Log
from alphafair.values.protocol import Account as Account
from alphafair.values.protocol import Feedback as Feedback
from alphafair.values.protocol import Policy as Policy
from alphafair.values.protocol import Traits as Traits
from alphafair.values.protocol import UniformSource as UniformSource
from alphafair.values.state import State as State
from alphafair.values.stream import ADVERSARIES as ADVERSARIES
from alphafair.values.stream import Adversary as Adversary
from alphafair.values.stream import Period as Period
from alphafair.values.stream import Stream as Stream
from alphafair.values.stream import Trace as Trace
