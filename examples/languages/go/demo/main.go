// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0

// A causal convolution, causal attention and a kernel of one's own, each held against its formula in float64.
package main

import (
	"fmt"
	"lathe"
	"log"
	"math"
	"os"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

var closers []func()

func values(c *lathe.Context, count, step int) ([]float32, *lathe.Buffer[float32]) {
	values := make([]float32, count)
	for i := range values {
		values[i] = float32(i*step%101)/50 - 1
	}
	buffer := must(lathe.Upload(c, values))
	closers = append(closers, buffer.Close)
	return values, buffer
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

// run runs a problem once with these tensors.
func run(c *lathe.Context, p *lathe.Problem, names []string, tensors ...lathe.Tensor) {
	plan := must(p.Plan(c))
	defer plan.Close()
	named := map[string]lathe.Tensor{}
	for i, name := range names {
		named[name] = tensors[i]
	}
	must(0, plan.Run(named))
}

func convolution(c *lathe.Context) {
	const t, d, w = 100, 64, 4
	problem := lathe.NewProblem("causal_conv1d").Set("activation", "silu")
	lathe.Declare[float32](problem, "x", -1, -1, d)
	lathe.Declare[float32](problem, "weight", d, w)
	lathe.Declare[float32](problem, "y", -1, -1, d)
	x, onX := values(c, t*d, 37)
	weight, onWeight := values(c, d*w, 53)
	_, y := values(c, t*d, 0)
	run(c, problem, []string{"x", "weight", "y"},
		onX.Shaped(1, t, d), onWeight.Shaped(d, w), y.Shaped(1, t, d))
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
	names := []string{"q", "k", "v", "out"}
	for _, name := range names {
		lathe.Declare[float32](problem, name, -1, -1, 1, d)
	}
	lathe.Declare[float32](problem, "lse", -1, 1, -1)
	q, onQ := values(c, t*d, 37)
	k, onK := values(c, t*d, 29)
	v, onV := values(c, t*d, 53)
	_, out := values(c, t*d, 0)
	_, lse := values(c, t, 0)
	run(c, problem, append(names, "lse"), onQ.Shaped(1, t, 1, d), onK.Shaped(1, t, 1, d),
		onV.Shaped(1, t, 1, d), out.Shaped(1, t, 1, d), lse.Shaped(1, 1, t))
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

func ownKernel(c *lathe.Context) {
	file := "../../own_kernels/add.cuh"
	kernel := must(lathe.ParseKernel(string(must(os.ReadFile(file))), file))
	defer kernel.Close()
	problem, names := lathe.NewProblem(kernel.Name()), []string{"x", "y", "z"}
	for _, name := range names {
		lathe.Declare[float32](problem, name, -1)
	}
	x, onX := values(c, 1000, 37)
	y, onY := values(c, 1000, 53)
	_, z := values(c, 1000, 0)
	run(c, problem, names, onX.Shaped(1000), onY.Shaped(1000), z.Shaped(1000))
	compare("own_kernel", must(z.Download()), func(i int) float64 {
		return float64(x[i]) + float64(y[i])
	})
}

func main() {
	context := must(lathe.NewContext())
	defer context.Close()
	convolution(context)
	attention(context)
	ownKernel(context)
	for _, end := range closers {
		end()
	}
	_, refused := lathe.NewProblem("causal_conv1d").Set("activation", "relu").Plan(context)
	fmt.Println("refused:", refused)
}
