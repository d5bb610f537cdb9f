// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0

// A causal convolution and causal attention, each held against its formula in float64.
package main

import (
	"fmt"
	"lathe"
	"log"
	"math"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func values(c *lathe.Context, count, step int) ([]float32, *lathe.Buffer[float32]) {
	values := make([]float32, count)
	for i := range values {
		values[i] = float32(i*step%101)/50 - 1
	}
	return values, must(lathe.Upload(c, values))
}

func compare(what string, found []float32, expected func(i int) float64) {
	worst := 0.0
	for i, value := range found {
		worst = math.Max(worst, math.Abs(expected(i)-float64(value)))
	}
	fmt.Printf("%s: largest error %.1e\n", what, worst)
	if !(worst < 1e-5) {
		log.Fatal(what, " is wrong")
	}
}

func convolution(c *lathe.Context) {
	const t, d, w = 100, 64, 4
	problem := lathe.NewProblem("causal_conv1d").Set("activation", "silu")
	lathe.Declare[float32](problem, "x", -1, -1, d)
	lathe.Declare[float32](problem, "weight", d, w)
	lathe.Declare[float32](problem, "y", -1, -1, d)
	plan := must(problem.Plan(c))
	defer plan.Close()
	x, onX := values(c, t*d, 37)
	weight, onWeight := values(c, d*w, 53)
	y := must(lathe.Allocate[float32](c, t*d))
	defer onX.Close()
	defer onWeight.Close()
	defer y.Close()
	must(0, plan.Run(map[string]lathe.Tensor{
		"x": onX.Shaped(1, t, d), "weight": onWeight.Shaped(d, w), "y": y.Shaped(1, t, d)}))
	compare("causal_conv1d", must(y.Download()), func(i int) float64 {
		z := 0.0
		for tap := 0; tap < w; tap++ {
			if i/d+tap+1 >= w {
				z += float64(weight[i%d*w+tap]) * float64(x[i+(tap+1-w)*d])
			}
		}
		return z / (1 + math.Exp(-z))
	})
}

func attention(c *lathe.Context) {
	const t, d = 48, 32
	problem := lathe.NewProblem("flash_attention").Set("causal", "1")
	for _, name := range []string{"q", "k", "v", "out"} {
		lathe.Declare[float32](problem, name, -1, -1, 1, d)
	}
	plan := must(lathe.Declare[float32](problem, "lse", -1, 1, -1).Plan(c))
	defer plan.Close()
	q, onQ := values(c, t*d, 37)
	k, onK := values(c, t*d, 29)
	v, onV := values(c, t*d, 53)
	out, lse := must(lathe.Allocate[float32](c, t*d)), must(lathe.Allocate[float32](c, t))
	for _, buffer := range []*lathe.Buffer[float32]{onQ, onK, onV, out, lse} {
		defer buffer.Close()
	}
	must(0, plan.Run(map[string]lathe.Tensor{
		"q": onQ.Shaped(1, t, 1, d), "k": onK.Shaped(1, t, 1, d), "v": onV.Shaped(1, t, 1, d),
		"out": out.Shaped(1, t, 1, d), "lse": lse.Shaped(1, 1, t)}))
	compare("flash_attention", must(out.Download()), func(i int) float64 {
		sum, total := 0.0, 0.0
		for j := 0; j <= i/d; j++ {
			score := 0.0
			for n := 0; n < d; n++ {
				score += float64(q[i/d*d+n]) * float64(k[j*d+n])
			}
			weight := math.Exp(score / math.Sqrt(d))
			sum, total = sum+weight, total+weight*float64(v[j*d+i%d])
		}
		return total / sum
	})
}

func main() {
	context := must(lathe.NewContext())
	defer context.Close()
	convolution(context)
	attention(context)
	_, refused := lathe.NewProblem("causal_conv1d").Set("activation", "relu").Plan(context)
	fmt.Println("refused:", refused)
}
