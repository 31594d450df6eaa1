"""The mathematics, as plain functions on arrays: they never validate, draw random numbers or log.

Every policy is two kernels on two arrays:

    draw(shared, learners, context, uniform, out) -> (arm, propensity)     writes the distribution to `out`
    learn(shared, learners, context, probabilities, rewards)               full information
    learn(shared, learners, context, arm, propensity, reward)              bandit feedback

`shared` is what all contexts have in common; `learners` has one block of rows a context: learners[context, row, i].
Both are three-dimensional; their layout stands at the top of each policy's file. `horizon` calls these same two kernels
once a round, which is why stepwise and compiled runs agree to the last bit.
"""
